/* SPDX-License-Identifier: MIT */
/*
 * The rows behind settings.h: one per key, with how its text becomes a value. Control
 * thread; constant data.
 */
#ifndef MR_SERVICE_SETTINGS_TABLE_H
#define MR_SERVICE_SETTINGS_TABLE_H

#include "service/settings.h"

enum { MR_SETTING_WHY_MAX = 160 };

enum setting_flags {
    MR_SETTING_NORAY = 1 << 0,  /* noray has it: NORAY_<KEY> is read as well */
    MR_SETTING_STRING = 1 << 1, /* the field is a const char * that the values own */
    MR_SETTING_LIVE = 1 << 2,   /* a reload changes it: see mr__service_apply_settings() */
};

struct setting_row {
    const char *key, *preset, *help;
    /* Parses text[0..n) into *field. 0, -EINVAL or -ERANGE with why filled, -ENOMEM. */
    int (*read)(const struct setting_row *row, const char *text, size_t n, void *field,
                char why[MR_SETTING_WHY_MAX]);
    size_t offset, size; /* of the field in settings_values */
    unsigned flags;
    uint64_t min, max; /* inclusive, in the value's own unit; unused by texts */
};

extern const struct setting_row mr__setting_rows[];
extern const size_t mr__setting_row_count;

#endif
