/* SPDX-License-Identifier: MIT */
/*
 * The Lua files inside the binary against those of the tree (MR_SOURCE_DIR, set by ctest). One
 * thread.
 */
#include "script/embedded.h"
#include "test.h"

#include <glob.h>

static char *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    REQUIRE(f != NULL);
    REQUIRE_EQ(fseek(f, 0, SEEK_END), 0);
    *size = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*size + 1);
    REQUIRE(data != NULL);
    REQUIRE_EQ(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

TEST(every_shipped_file_is_inside_byte_for_byte)
{
    const char *root = getenv("MR_SOURCE_DIR");
    char pattern[4096];
    glob_t found;

    REQUIRE(root != NULL);
    snprintf(pattern, sizeof pattern, "%s/lua/{relay,policies}/*.lua", root);
    REQUIRE_EQ(glob(pattern, GLOB_BRACE, NULL, &found), 0);
    REQUIRE_GE(found.gl_pathc, 1u);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *name = found.gl_pathv[i] + strlen(root) + strlen("/lua/");
        const struct embedded_file *file = mr__embedded_find(name);
        size_t size;
        char *data = read_file(found.gl_pathv[i], &size);

        fprintf(stderr, "# %s\n", name);
        REQUIRE(file != NULL);
        CHECK_STR(file->name, name);
        CHECK_MEM(file->data, file->size, data, size);
        CHECK_EQ(file->data[file->size], 0);
        free(data);
    }
    globfree(&found);
}

TEST(a_name_that_is_not_shipped_is_not_found)
{
    CHECK_EQ(mr__embedded_find("policies/none.lua"), NULL);
    CHECK_EQ(mr__embedded_find(""), NULL);
}

TEST_MAIN(TEST_CASE(every_shipped_file_is_inside_byte_for_byte),
          TEST_CASE(a_name_that_is_not_shipped_is_not_found))
