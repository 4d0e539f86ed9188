// A call whose thread yields the processor again and again (giving_way.py). It decides nothing.
//
//     call(function, microseconds) -> what the function returns
//
// Linux looks who may run when a thread wakes, and then at its next tick, up to 4 ms later. So a timer sends the thread a
// signal, whose handler yields and starts the timer again: so each turn of the thread is as long, however long it waits for
// one. While the thread has the interpreter's lock it does not yield: others wait for that. Without a timer, without a free
// signal, and when something else has taken the signal since, the function is called as it is.
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
static _Thread_local timer_t timer;
static _Thread_local struct itimerspec turn;
static _Thread_local volatile bool has_timer;

static void yield(int number) {
    (void)number;
    int before = errno;
    if (!PyGILState_Check())
        sched_yield();
    if (has_timer)  // a signal may come late
        timer_settime(timer, 0, &turn, NULL);
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

static bool has_signal(void) {
    struct sigaction found;
    return chosen > 0 && sigaction(chosen, NULL, &found) == 0 && found.sa_handler == yield;
}

static void start_timer(long microseconds) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = chosen};
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) < 0)
        return;
    turn.it_value = (struct timespec){microseconds / 1000000, microseconds % 1000000 * 1000};
    has_timer = true;
    timer_settime(timer, 0, &turn, NULL);
}

static void end_timer(void) {
    if (has_timer) {
        has_timer = false;
        timer_delete(timer);
    }
}

static PyObject *call(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *function;
    long microseconds;
    if (!PyArg_ParseTuple(arguments, "Ol", &function, &microseconds))
        return NULL;
    if (chosen == 0)
        choose();
    bool is_first = !has_timer && has_signal();  // a call within a call has the timer of that one
    if (is_first)
        start_timer(microseconds);
    PyObject *result = PyObject_CallNoArgs(function);
    if (is_first)
        end_timer();
    return result;
}

static PyMethodDef methods[] = {
    {"call", call, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_yields", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__yields(void) { return PyModule_Create(&definition); }
