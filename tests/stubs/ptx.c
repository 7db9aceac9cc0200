/* Asks a driver's compiler of PTX: PROGRAM LIBRARY, then lines `SM ISA TARGET` on standard input. Writes the version of the
 * language that the compiler takes, then for each line whether a kernel compiled.
 *
 * The library exports the functions of nvPTXCompiler.h (CUDA 11.1 and later) and needs no GPU. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    int (*version)(unsigned *, unsigned *) = dlsym(library, "nvPTXCompilerGetVersion");
    int (*create)(void **, size_t, const char *) = dlsym(library, "nvPTXCompilerCreate");
    int (*destroy)(void **) = dlsym(library, "nvPTXCompilerDestroy");
    int (*compile)(void *, int, const char *const *) = dlsym(library, "nvPTXCompilerCompile");
    unsigned major = 0, minor = 0;
    if (!version || !create || !destroy || !compile || version(&major, &minor)) {
        fprintf(stderr, "no such functions\n");
        return 2;
    }
    printf("%u.%u\n", major, minor);
    char sm[32], isa[32], target[32];
    while (scanf("%31s %31s %31s", sm, isa, target) == 3) {
        char ptx[512], name[64];
        snprintf(ptx, sizeof ptx, ".version %s\n.target %s\n.address_size 64\n.visible .entry k() { ret; }\n", isa, target);
        snprintf(name, sizeof name, "--gpu-name=%s", sm);
        const char *options[] = {name};
        void *compiler = NULL;
        int code = create(&compiler, strlen(ptx), ptx);
        if (!code) {
            code = compile(compiler, 1, options);
            destroy(&compiler);
        }
        printf("%d\n", code);
    }
    return 0;
}
