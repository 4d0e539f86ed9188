// A call whose thread yields the processor again and again (giving_way.py). It decides nothing.
//
//     call(function, microseconds) -> what the function returns
//
// Linux looks who may run when a thread wakes, and then at its next tick, up to 4 ms later. So a timer sends the thread a
// signal each time, whose handler yields. While the thread has the interpreter's lock it does not: others wait for that.
// Without a timer, or a free signal, the function is called as it is.
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

// In every Python since 3.4, and not in the limited API.
extern int PyGILState_Check(void);

static int chosen = 0;  // the signal; 0 before the first call, -1 if none is free

static void yield(int number) {
    (void)number;
    int before = errno;
    if (!PyGILState_Check())
        sched_yield();
    errno = before;
}

// Choose the last real-time signal that has no handler: libraries take the first ones.
static void choose(void) {
    struct sigaction found, ours = {.sa_handler = yield, .sa_flags = SA_RESTART};
    sigemptyset(&ours.sa_mask);
    chosen = -1;
    for (int number = SIGRTMAX; chosen < 0 && number >= SIGRTMIN; number--) {
        bool is_free = sigaction(number, NULL, &found) == 0 && found.sa_handler == SIG_DFL;
        if (is_free && sigaction(number, &ours, NULL) == 0)
            chosen = number;
    }
}

static bool start_timer(long microseconds, timer_t *timer) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = chosen};
    struct timespec each = {microseconds / 1000000, microseconds % 1000000 * 1000};
    struct itimerspec times = {each, each};
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    if (timer_create(CLOCK_MONOTONIC, &event, timer) < 0)
        return false;
    timer_settime(*timer, 0, &times, NULL);
    return true;
}

static PyObject *call(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *function;
    long microseconds;
    timer_t timer;
    if (!PyArg_ParseTuple(arguments, "Ol", &function, &microseconds))
        return NULL;
    if (chosen == 0)
        choose();
    bool has_timer = chosen > 0 && start_timer(microseconds, &timer);
    PyObject *result = PyObject_CallNoArgs(function);
    if (has_timer)
        timer_delete(timer);
    return result;
}

static PyMethodDef methods[] = {
    {"call", call, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_yields", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__yields(void) { return PyModule_Create(&definition); }
