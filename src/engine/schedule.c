/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule.h"

void loongi_schedule_one_stage(int64_t micro_batches, loong_entry_t *entries)
{
    for (int64_t i = 0; i < 2 * micro_batches; i++) {
        loong_entry_t entry = {i % 2 == 0 ? LOONG_PROGRAM_F : LOONG_PROGRAM_B,
                               0, i / 2, 0, -1};
        entries[i] = entry;
    }
}
