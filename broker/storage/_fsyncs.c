// Threads that call fdatasync and never take the interpreter's lock (fsyncs.py). They decide nothing.
//
//     pool(threads) -> a pool of at most so many threads; each is started when it is needed, and ends with the pool
//     event(pool) -> eventfd       readable when a flush has ended
//     begin(pool, fd, token)       queue one; OSError EAGAIN if it cannot be
//     ended(pool) -> [(token, errno)]
//     ROOM                         how many may be begun and not yet given back by `ended`
//
// What is begun is always ended, so each token is given back once.
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { ROOM = 1024, STACK_BYTES = 64 * 1024 };

typedef struct {
    unsigned long token;
    int descriptor, error;
} Job;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t has_job;
    Job waiting[ROOM], ended[ROOM];
    // How many were begun, taken by a thread, ended and given back: ever smaller, and at most ROOM apart.
    uint64_t begun, taken, ended_count, given;
    int threads, threads_max, idle, event;
    bool is_over;
} Pool;

static const char NAME[] = "odradek fsyncs";

static void *freed(Pool *pool) {
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->has_job);
    close(pool->event);
    free(pool);
    return NULL;
}

static void *work(void *argument) {
    Pool *pool = argument;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->taken == pool->begun && !pool->is_over) {
            pool->idle++;
            pthread_cond_wait(&pool->has_job, &pool->lock);
            pool->idle--;
        }
        if (pool->taken == pool->begun)
            break;
        Job job = pool->waiting[pool->taken++ % ROOM];
        pthread_mutex_unlock(&pool->lock);
        job.error = fdatasync(job.descriptor) == 0 ? 0 : errno;
        pthread_mutex_lock(&pool->lock);
        pool->ended[pool->ended_count++ % ROOM] = job;
        pthread_mutex_unlock(&pool->lock);
        uint64_t one = 1;
        if (write(pool->event, &one, sizeof one) != sizeof one)
            abort();  // far from the limit of an eventfd
        pthread_mutex_lock(&pool->lock);
    }
    bool is_last = --pool->threads == 0;
    pthread_mutex_unlock(&pool->lock);
    return is_last ? freed(pool) : NULL;
}

static int new_thread(Pool *pool) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t every, before;
    sigfillset(&every);  // signals are for Python's main thread
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    int error = pthread_create(&thread, &attributes, work, pool);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

static PyObject *failed(int error) {
    errno = error;
    return PyErr_SetFromErrno(PyExc_OSError);
}

static void end_pool(PyObject *capsule) {
    Pool *pool = PyCapsule_GetPointer(capsule, NAME);
    pthread_mutex_lock(&pool->lock);
    pool->is_over = true;
    bool is_last = pool->threads == 0;
    pthread_cond_broadcast(&pool->has_job);
    pthread_mutex_unlock(&pool->lock);
    if (is_last)
        freed(pool);
}

static PyObject *new_pool(PyObject *module, PyObject *arguments) {
    (void)module;
    int threads_max;
    if (!PyArg_ParseTuple(arguments, "i", &threads_max))
        return NULL;
    Pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        return PyErr_NoMemory();
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->has_job, NULL);
    pool->threads_max = threads_max;
    pool->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (pool->event < 0) {
        int error = errno;
        freed(pool);
        return failed(error);
    }
    PyObject *capsule = PyCapsule_New(pool, NAME, end_pool);
    if (capsule == NULL)
        freed(pool);
    return capsule;
}

static PyObject *event(PyObject *module, PyObject *capsule) {
    (void)module;
    Pool *pool = PyCapsule_GetPointer(capsule, NAME);
    return pool == NULL ? NULL : PyLong_FromLong(pool->event);
}

static PyObject *begin(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *capsule;
    Job job = {0, 0, 0};
    if (!PyArg_ParseTuple(arguments, "Oik", &capsule, &job.descriptor, &job.token))
        return NULL;
    Pool *pool = PyCapsule_GetPointer(capsule, NAME);
    if (pool == NULL)
        return NULL;
    int error = 0;
    pthread_mutex_lock(&pool->lock);
    if (pool->begun - pool->given >= ROOM)
        error = EAGAIN;
    else if (pool->begun - pool->taken >= (uint64_t)pool->idle && pool->threads < pool->threads_max) {
        error = new_thread(pool);
        pool->threads += error == 0;
        if (pool->threads > 0)
            error = 0;  // another thread does it
    }
    if (error == 0) {
        pool->waiting[pool->begun++ % ROOM] = job;
    }
    pthread_mutex_unlock(&pool->lock);
    if (error != 0)
        return failed(error);
    pthread_cond_signal(&pool->has_job);
    Py_RETURN_NONE;
}

static PyObject *ended(PyObject *module, PyObject *capsule) {
    (void)module;
    Pool *pool = PyCapsule_GetPointer(capsule, NAME);
    uint64_t count;
    if (pool == NULL)
        return NULL;
    if (read(pool->event, &count, sizeof count) < 0 && errno != EAGAIN)
        return failed(errno);
    PyObject *found = PyList_New(0);
    while (found != NULL) {
        pthread_mutex_lock(&pool->lock);
        bool is_left = pool->given < pool->ended_count;
        Job job = pool->ended[pool->given % ROOM];
        pool->given += is_left;
        pthread_mutex_unlock(&pool->lock);
        if (!is_left)
            break;
        PyObject *pair = Py_BuildValue("(ki)", job.token, job.error);
        if (pair == NULL || PyList_Append(found, pair) < 0)
            Py_CLEAR(found);
        Py_XDECREF(pair);
    }
    return found;
}

static PyMethodDef methods[] = {
    {"pool", new_pool, METH_VARARGS, NULL},
    {"event", event, METH_O, NULL},
    {"begin", begin, METH_VARARGS, NULL},
    {"ended", ended, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_fsyncs", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fsyncs(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddIntConstant(module, "ROOM", ROOM) < 0)
        Py_CLEAR(module);
    return module;
}
