/* A libcuda for states that need a GPU or a broken driver. STUB in the environment says what is broken. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int broken(const char *how) {
    const char *stub = getenv("STUB");
    return stub && !strcmp(stub, how);
}

static void hang(void) {
    for (;;)
        pause();
}

__attribute__((constructor)) static void loaded(void) {
    if (broken("crash-load"))
        raise(SIGSEGV);
    if (broken("exit-load"))
        exit(3);
}

int cuDriverGetVersion(int *version) {
    if (broken("hang-version"))
        hang();
    if (broken("print"))
        fputs("cuda says\x1b[2J\n{\"done\":null}\n", stdout);
    *version = 99080;
    return 0;
}

int cuInit(unsigned flags) {
    (void)flags;
    if (broken("hang-init"))
        hang();
    if (broken("crash-init")) {
        fputs("about to fall over\n", stdout);
        raise(SIGABRT);
    }
    if (broken("exit-init"))
        exit(7);
    if (broken("flood"))
        for (int i = 0; i < 100000; i++)
            puts("the same line over and over");
    if (broken("close-all"))
        for (int fd = 0; fd < 1024; fd++)
            close(fd);
    if (broken("shout"))
        for (int fd = 3; fd < 1024; fd++)
            if (write(fd, "not a message\n", 14) < 0)
                continue;
    if (broken("fork-crash")) {
        if (fork() == 0) {
            alarm(5);
            hang();
        }
        raise(SIGILL);
    }
    return broken("mismatch") ? 803 : 0;
}

int cuDeviceGetCount(int *count) {
    *count = 2;
    return 0;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = 40 + ordinal;
    return 0;
}

int cuDeviceGetName(char *name, int length, int device) {
    snprintf(name, length, "Stub GPU %d", device);
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 75 ? 9 : device - 40;
    return attribute == 75 || attribute == 76 ? 0 : 1;
}

int cuDeviceGetPCIBusId(char *text, int length, int device) {
    snprintf(text, length, "0000:C%d:00.0", device - 40);
    return 0;
}
