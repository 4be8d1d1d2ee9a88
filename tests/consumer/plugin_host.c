/* SPDX-License-Identifier: MIT */
/*
 * A program whose plugin uses the library of lookups: loads it (argv[1]), lets go of it, and says
 * whether its code is still there, as it must be for a thread that is at a name meanwhile.
 */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;

    if (!library || !dlsym(library, "mr_lookup_start")) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    dlclose(library);
    puts(dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) ? "stays" : "gone");
    return 0;
}
