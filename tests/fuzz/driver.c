/* SPDX-License-Identifier: MIT */
/*
 * Runs the files of a corpus folder through a fuzz target without libFuzzer, so that the corpus is
 * checked in every build and not only in clang's. One thread. Input is copied to a block of exactly
 * its size, so that ASan sees the first byte read past it.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
    struct stat st;
    FILE *f = fopen(path, "rb");

    if (!f || fstat(fileno(f), &st) != 0) {
        perror(path);
        exit(1);
    }
    if (!S_ISREG(st.st_mode)) {
        fclose(f);
        return 0;
    }
    size_t size = (size_t)st.st_size;
    uint8_t *data = malloc(size ? size : 1);
    if (!data || fread(data, 1, size, f) != size) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(1);
    }
    fclose(f);
    uint8_t *exact = size ? data : NULL;
    fprintf(stderr, "%s: %zu bytes\n", path, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(data);
    return 1;
}

int main(int argc, char **argv)
{
    int ran = 0;

    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        if (!dir) {
            ran += run_file(argv[i]);
            continue;
        }
        for (struct dirent *e; (e = readdir(dir)) != NULL;) {
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            ran += run_file(path);
        }
        closedir(dir);
    }
    printf("%d inputs\n", ran);
    /* An empty corpus checks nothing, which must not look like a pass. */
    return ran > 0 ? 0 : 1;
}
