/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Runs a fuzz target on files, for builds without libFuzzer: each argument is a file, or a folder of
 * files. Says how many there were; a target that finds a fault ends the program.
 */
#include "target.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void refuse(const char *path)
{
        perror(path);
        exit(1);
}

static void run_file(const char *path)
{
        FILE *file = fopen(path, "rbe");
        struct stat status;
        uint8_t *bytes;
        size_t size;

        if (!file || fstat(fileno(file), &status))
                refuse(path);
        size = (size_t)status.st_size;
        /* The copy ends with the input, so that a checker sees reads behind it. */
        bytes = malloc(size ? size : 1);
        if (!bytes || fread(bytes, 1, size, file) != size)
                refuse(path);
        fclose(file);
        fprintf(stderr, "%s\n", path);
        LLVMFuzzerTestOneInput(bytes, size);
        free(bytes);
}

static unsigned long run_folder(const char *path)
{
        struct dirent **names;
        int count = scandir(path, &names, NULL, alphasort);
        unsigned long run = 0;

        if (count < 0)
                refuse(path);
        for (int i = 0; i < count; i++) {
                char name[4096];

                snprintf(name, sizeof(name), "%s/%s", path, names[i]->d_name);
                if (names[i]->d_name[0] != '.') {
                        run_file(name);
                        run++;
                }
                free(names[i]);
        }
        free(names);
        return run;
}

int main(int argc, char **argv)
{
        unsigned long run = 0;

        for (int i = 1; i < argc; i++) {
                struct stat status;

                if (stat(argv[i], &status))
                        refuse(argv[i]);
                if (S_ISDIR(status.st_mode)) {
                        run += run_folder(argv[i]);
                } else {
                        run_file(argv[i]);
                        run++;
                }
        }
        printf("%lu inputs\n", run);
        return run ? 0 : 1;
}
