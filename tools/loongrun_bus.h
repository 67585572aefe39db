/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOONGRUN_BUS_H
#define LOONGRUN_BUS_H

/* A mapped file that somebody shortens ends a process by SIGBUS where it is
 * read. From now on standard error says which file it was, first. */
void bus_install(void);

#endif
