// Receiving on all sockets of an epoll that are ready, by one call (ready_sockets.py). It decides nothing, and is equal to
// the function of the same name there, which is the reference.
//
//     receive(epoll, memory, start, room, count) -> [(descriptor, start, size)]
//
// tests/broker/environment/test_ready_sockets.py compares the two.
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { COUNT_MAX = 128, UNTRIED = -4096 };

typedef struct {
    int descriptor;
    Py_ssize_t start, size;
} Received;

// Receive at most `room` bytes on each socket, one behind the other. Returns how many sockets are ready, -1 with an errno.
static int receive_all(int epoll, char *memory, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t room, int count, Received *found) {
    struct epoll_event events[COUNT_MAX];
    int ready = epoll_wait(epoll, events, count, 0);
    for (int i = 0; i < ready; i++) {
        Received *each = found + i;
        *each = (Received){events[i].data.fd, start, UNTRIED};
        if (!(events[i].events & EPOLLRDNORM) || stop - start < room)
            continue;
        ssize_t size = recv(each->descriptor, memory + start, (size_t)room, 0);
        each->size = size < 0 ? -errno : size;
        start = size < 0 ? start : size < room ? start + size : stop;
    }
    return ready;
}

static PyObject *receive(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *epoll;
    Py_buffer memory;
    Py_ssize_t start, room;
    int count;
    Received found[COUNT_MAX];
    if (!PyArg_ParseTuple(arguments, "Ow*nni", &epoll, &memory, &start, &room, &count))
        return NULL;
    int descriptor = PyObject_AsFileDescriptor(epoll), ready = -1;
    PyObject *list = NULL;
    if (descriptor >= 0 && (start < 0 || room < 1 || count < 1 || count > COUNT_MAX))
        PyErr_SetString(PyExc_ValueError, "a number is out of its range");
    else if (descriptor >= 0) {
        Py_BEGIN_ALLOW_THREADS;
        ready = receive_all(descriptor, memory.buf, start, memory.len, room, count, found);
        Py_END_ALLOW_THREADS;
        list = ready < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyList_New(ready);
    }
    PyBuffer_Release(&memory);
    for (int i = 0; list != NULL && i < ready; i++) {
        PyObject *each = Py_BuildValue("(inn)", found[i].descriptor, found[i].start, found[i].size);
        if (each == NULL || PyList_SetItem(list, i, each) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyMethodDef methods[] = {
    {"receive", receive, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_sockets", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__sockets(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddIntConstant(module, "UNTRIED", UNTRIED) < 0)
        Py_CLEAR(module);
    return module;
}
