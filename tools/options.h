/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of a command line. */
#ifndef LOONG_TOOLS_OPTIONS_H
#define LOONG_TOOLS_OPTIONS_H

#include <getopt.h>

/* The next of the long options, as getopt_long gives it (-h is --help); what
 * is wrong has been said when it is '?', in the name of argv[0], with
 * the option that was probably meant. */
int options_next(int argc, char **argv, const struct option *options);

#endif
