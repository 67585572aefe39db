/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of a command line. */
#ifndef LOONG_TOOLS_OPTIONS_H
#define LOONG_TOOLS_OPTIONS_H

#include <getopt.h>
#include <stdint.h>

/* The next of the long options, as getopt_long gives it (-h is --help); what
 * is wrong has been said when it is '?', in the name of argv[0], with
 * the option that was probably meant. */
int options_next(int argc, char **argv, const struct option *options);

/* The next of an option's whole numbers, which commas separate: *at_p goes
 * behind it, NULL behind the last. 0, and *at_p stays, where none from 1 to
 * most stands. */
int64_t options_number(const char **at_p, int64_t most);

#endif
