/* SPDX-License-Identifier: Apache-2.0
 *
 * The status board. Called by communicators and by src/launch/parent.c. Read
 * board.h before. */
#define _GNU_SOURCE /* sched_getaffinity */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "board.h"

enum { RING = 8, WAITS = LOONG_BOARD_WAITS, STANDS = 16 };
enum { VERDICT_NONE, VERDICT_WRITING, VERDICT_READY };

typedef struct event {
    char what[16];
    char group[LOONG_GROUP_NAME];
    char label[LOONG_EVENT_LABEL];
    char source[LOONG_SOURCE_TEXT];
    uint64_t sequence;
    int64_t bytes;
    int64_t step;
    double begin;
    _Atomic double end; /* 0: still inside */
} event_t;

/* rank: of the world + 1; 0: free, -1: taken. */
typedef struct waiting {
    _Atomic int rank;
    _Atomic double since;
    _Atomic double limit;
    _Atomic bool beside;
    _Atomic uint64_t group;
} waiting_t;

typedef struct standing {
    _Atomic uint64_t group; /* 0: free */
    _Atomic uint64_t sequence;
    _Atomic int ranks;
} standing_t;

/* rank as above; 0: nothing was heard. */
typedef struct heard {
    _Atomic int rank;
    standing_t stand;
    char text[LOONG_BOARD_TEXT];
} heard_t;

struct loong_board_slot {
    _Alignas(64) _Atomic int state;
    _Atomic int claimed;
    _Atomic int world_rank;
    _Atomic int pid;
    _Atomic int parent;
    _Atomic bool joined;
    _Atomic int64_t step;
    _Atomic int cores; /* 0: not known */
    _Atomic uint64_t core_set; /* hash of which */
    waiting_t wait[WAITS];
    heard_t heard[WAITS];
    standing_t stand[STANDS];
    _Atomic uint64_t events;
    event_t ring[RING];
    char text[LOONG_BOARD_TEXT];
};

struct loong_board {
    _Alignas(64) _Atomic int slots;
    _Atomic int verdict_state;
    _Atomic bool told;
    _Atomic double heartbeat;
    loong_board_verdict_t verdict;
    loong_board_slot_t slot[];
};

static const char *state_name(loong_rank_state_t state)
{
    static const char *const names[] = {
#define LOONG_RANK_STATE_TEXT(name_, text_) text_,
        LOONG_RANK_STATE_LIST(LOONG_RANK_STATE_TEXT)
#undef LOONG_RANK_STATE_TEXT
    };
    return names[state];
}

/* snprintf costs more than a small collective. */
static void copy_text(char *to, size_t size, const char *from)
{
    size_t n = from != NULL ? strnlen(from, size - 1) : 0;
    memcpy(to, from != NULL ? from : "", n);
    to[n] = '\0';
}

void loongi_board_text(char *to, size_t size, const char *from)
{
    static const char cut[] = " ...";
    copy_text(to, size, from);
    if (from == NULL || strlen(from) < size || size <= sizeof(cut)) {
        return;
    }
    size_t end = size - sizeof(cut);
    while (end > 0 && to[end] != ' ') {
        end--;
    }
    memcpy(to + end, cut, sizeof(cut));
}

void loongi_source_text(const char *file, int line,
                        char text[LOONG_SOURCE_TEXT])
{
    char digits[12]; /* of a positive int, backwards */
    size_t n = 0;
    const char *slash = file != NULL ? strrchr(file, '/') : NULL;
    copy_text(text, LOONG_SOURCE_TEXT - sizeof(digits),
              slash != NULL ? slash + 1 : file);
    size_t end = strlen(text);
    if (file == NULL || line <= 0) {
        return;
    }
    for (; line > 0; line /= 10) {
        digits[n++] = (char)('0' + line % 10);
    }
    text[end++] = ':';
    while (n > 0) {
        text[end++] = digits[--n];
    }
    text[end] = '\0';
}

size_t loongi_board_bytes(int slots)
{
    return sizeof(loong_board_t) + (size_t)slots * sizeof(loong_board_slot_t);
}

loong_board_t *loongi_board_init(void *memory, int slots)
{
    loong_board_t *board = memory;
    atomic_store(&board->slots, slots);
    return board;
}

int loongi_board_slots(const loong_board_t *board)
{
    return atomic_load(&board->slots);
}

void loongi_board_set_heartbeat(loong_board_t *board, double seconds)
{
    static const double DEFAULT_SECONDS = 40.0;
    atomic_store(&board->heartbeat, seconds > 0.0 ? seconds : DEFAULT_SECONDS);
}

double loongi_board_heartbeat(const loong_board_t *board)
{
    return atomic_load(&board->heartbeat);
}

loong_board_slot_t *loongi_board_slot(loong_board_t *board, int index)
{
    bool inside = index >= 0 && index < loongi_board_slots(board);
    return inside ? &board->slot[index] : NULL;
}

loong_board_slot_t *loongi_board_find(loong_board_t *board, int world_rank)
{
    int slots = loongi_board_slots(board);
    for (int i = 0; i < slots; i++) {
        loong_board_slot_t *slot = &board->slot[i];
        if (atomic_load(&slot->claimed) &&
            atomic_load(&slot->world_rank) == world_rank) {
            return slot;
        }
    }
    return NULL;
}

void loongi_slot_claim(loong_board_slot_t *slot, int world_rank, int pid)
{
    atomic_store(&slot->world_rank, world_rank);
    atomic_store(&slot->pid, pid);
    atomic_store(&slot->claimed, 1);
    atomic_store(&slot->state, LOONG_RANK_STARTING);
}

void loongi_slot_set_pid(loong_board_slot_t *slot, int pid)
{
    atomic_store(&slot->pid, pid);
}

void loongi_slot_set_parent(loong_board_slot_t *slot, int pid)
{
    atomic_store(&slot->parent, pid);
}

int loongi_slot_parent(const loong_board_slot_t *slot)
{
    return atomic_load(&slot->parent);
}

/* Ranks are bound to the same cores or to others, so a hash tells enough. */
void loongi_slot_set_cores(loong_board_slot_t *slot)
{
    cpu_set_t set;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0) {
        return;
    }
    for (int i = 0; i < CPU_SETSIZE; i++) {
        hash = (hash ^ (uint64_t)(CPU_ISSET(i, &set) != 0)) *
               UINT64_C(0x100000001b3);
    }
    atomic_store(&slot->core_set, hash);
    atomic_store(&slot->cores, CPU_COUNT(&set));
}

bool loongi_board_is_crowded(loong_board_t *board,
                             const loong_board_slot_t *slot)
{
    int ranks = 0;
    int cores = atomic_load(&slot->cores);
    int slots = loongi_board_slots(board);
    for (int i = 0; i < slots; i++) {
        const loong_board_slot_t *other = &board->slot[i];
        ranks += atomic_load(&other->cores) == cores &&
                 atomic_load(&other->core_set) == atomic_load(&slot->core_set);
    }
    return cores > 0 && ranks > cores;
}

int loongi_slot_world_rank(const loong_board_slot_t *slot)
{
    return atomic_load(&slot->world_rank);
}

int loongi_slot_pid(const loong_board_slot_t *slot)
{
    return atomic_load(&slot->pid);
}

loong_rank_state_t loongi_slot_state(const loong_board_slot_t *slot)
{
    return (loong_rank_state_t)atomic_load(&slot->state);
}

bool loongi_slot_joined(const loong_board_slot_t *slot)
{
    return atomic_load(&slot->joined);
}

void loongi_slot_set_state(loong_board_slot_t *slot, loong_rank_state_t state,
                           const char *text)
{
    if (text != NULL) {
        loongi_board_text(slot->text, sizeof(slot->text), text);
    }
    if (state == LOONG_RANK_RUNNING) {
        atomic_store(&slot->joined, true);
    }
    atomic_store(&slot->state, state);
}

void loongi_slot_set_step(loong_board_slot_t *slot, int64_t step)
{
    atomic_store_explicit(&slot->step, step, memory_order_relaxed);
}

uint64_t loongi_slot_begin(loong_board_slot_t *slot,
                           const loong_board_event_t *event, double now)
{
    uint64_t n = atomic_fetch_add(&slot->events, 1);
    event_t *to = &slot->ring[n % RING];
    copy_text(to->what, sizeof(to->what), event->what);
    copy_text(to->group, sizeof(to->group), event->group);
    copy_text(to->label, sizeof(to->label), event->label);
    loongi_source_text(event->file, event->line, to->source);
    to->sequence = event->sequence;
    to->bytes = event->bytes;
    to->step = atomic_load_explicit(&slot->step, memory_order_relaxed);
    to->begin = now;
    atomic_store_explicit(&to->end, 0.0, memory_order_release);
    return n;
}

void loongi_slot_end(loong_board_slot_t *slot, uint64_t number, double now)
{
    if (atomic_load(&slot->events) - number <= RING) {
        atomic_store_explicit(&slot->ring[number % RING].end, now,
                              memory_order_relaxed);
    }
}

void loongi_slot_wait_for(loong_board_slot_t *slot,
                          const loong_board_wait_t *wait, int *record_p)
{
    for (int i = 0; i < WAITS && *record_p < 0; i++) {
        int nobody = 0;
        if (atomic_compare_exchange_strong(&slot->wait[i].rank, &nobody, -1)) {
            *record_p = i;
        }
    }
    if (*record_p >= 0) {
        waiting_t *w = &slot->wait[*record_p];
        atomic_store(&w->since, wait->since);
        atomic_store(&w->limit, wait->limit);
        atomic_store(&w->beside, wait->beside);
        atomic_store(&w->group, wait->group);
        atomic_store(&w->rank, wait->world_rank + 1);
    }
}

void loongi_slot_wait_end(loong_board_slot_t *slot, int *record_p)
{
    if (*record_p >= 0) {
        atomic_store(&slot->wait[*record_p].rank, 0);
        *record_p = -1;
    }
}

bool loongi_slot_waits(const loong_board_slot_t *slot, int i,
                       loong_board_wait_t *wait_p)
{
    const waiting_t *w = &slot->wait[i];
    wait_p->world_rank = atomic_load(&w->rank) - 1;
    wait_p->since = atomic_load(&w->since);
    wait_p->limit = atomic_load(&w->limit);
    wait_p->beside = atomic_load(&w->beside);
    wait_p->group = atomic_load(&w->group);
    return wait_p->world_rank >= 0;
}

/* Ranks are read last, for the call that they belong to. */
static void put_stand(standing_t *to, const loong_board_stand_t *stand)
{
    if (atomic_load(&to->sequence) != stand->sequence) {
        atomic_store(&to->sequence, 0);
        atomic_store(&to->ranks, 0);
    }
    atomic_store(&to->group, stand->group);
    atomic_store(&to->ranks, stand->ranks);
    atomic_store(&to->sequence, stand->sequence);
}

static loong_board_stand_t get_stand(const standing_t *from)
{
    loong_board_stand_t stand = {atomic_load(&from->group),
                                 atomic_load(&from->sequence),
                                 atomic_load(&from->ranks)};
    return stand;
}

void loongi_slot_set_stand(loong_board_slot_t *slot,
                           const loong_board_stand_t *stand)
{
    standing_t *to = NULL;
    for (int i = 0; i < STANDS; i++) {
        uint64_t group = atomic_load(&slot->stand[i].group);
        if (group == stand->group) {
            to = &slot->stand[i];
            break;
        }
        if (to == NULL && atomic_load(&slot->stand[i].sequence) == 0) {
            to = &slot->stand[i];
        }
    }
    if (to != NULL) { /* else it is waited for to the time limit */
        put_stand(to, stand);
    }
}

loong_board_stand_t loongi_board_stand(loong_board_t *board, int world_rank,
                                       uint64_t group)
{
    loong_board_stand_t none = {group, 0, 0};
    const loong_board_slot_t *slot = loongi_board_find(board, world_rank);
    for (int i = 0; i < STANDS && slot != NULL; i++) {
        loong_board_stand_t stand = get_stand(&slot->stand[i]);
        if (stand.group == group) {
            return stand;
        }
    }
    for (int i = 0; i < WAITS * loongi_board_slots(board) && slot == NULL;
         i++) {
        const heard_t *heard = &board->slot[i / WAITS].heard[i % WAITS];
        loong_board_stand_t stand = get_stand(&heard->stand);
        if (atomic_load(&heard->rank) == world_rank + 1 &&
            stand.group == group) {
            return stand;
        }
    }
    return none;
}

void loongi_slot_hear(loong_board_slot_t *slot, int i, int world_rank,
                      const char *text, const loong_board_stand_t *stand)
{
    heard_t *heard = &slot->heard[i];
    atomic_store(&heard->rank, 0);
    loongi_board_text(heard->text, sizeof(heard->text), text);
    put_stand(&heard->stand, stand);
    atomic_store(&heard->rank, world_rank + 1);
}

/* What the rank said of itself to one of this machine; NULL: nothing. */
static const char *find_heard(loong_board_t *board, int world_rank)
{
    int slots = board != NULL ? loongi_board_slots(board) : 0;
    for (int i = 0; i < WAITS * slots; i++) {
        heard_t *heard = &board->slot[i / WAITS].heard[i % WAITS];
        if (atomic_load(&heard->rank) == world_rank + 1) {
            return heard->text;
        }
    }
    return NULL;
}

double loongi_board_overdue(loong_board_t *board, int world_rank, double now,
                            int *waiter_p)
{
    double worst = -1.0;
    for (int i = 0; i < WAITS * loongi_board_slots(board); i++) {
        loong_board_slot_t *slot = &board->slot[i / WAITS];
        waiting_t *w = &slot->wait[i % WAITS];
        if (atomic_load(&w->rank) != world_rank + 1) {
            continue;
        }
        double over = now - atomic_load(&w->since) - atomic_load(&w->limit);
        if (over > worst) {
            worst = over;
            *waiter_p = atomic_load(&slot->world_rank);
        }
    }
    return worst;
}

int loongi_board_waiter(loong_board_t *board, int world_rank)
{
    for (int i = 0; i < WAITS * loongi_board_slots(board); i++) {
        loong_board_slot_t *slot = &board->slot[i / WAITS];
        if (atomic_load(&slot->wait[i % WAITS].rank) == world_rank + 1) {
            return atomic_load(&slot->world_rank);
        }
    }
    return -1;
}

int loongi_board_waits_for(loong_board_t *board, int world_rank,
                           double *since_p)
{
    const loong_board_slot_t *slot = loongi_board_find(board, world_rank);
    int found = -1;
    *since_p = 0.0;
    for (int i = 0; slot != NULL && i < WAITS; i++) {
        int rank = atomic_load(&slot->wait[i].rank) - 1;
        double since = atomic_load(&slot->wait[i].since);
        if (rank >= 0 && !atomic_load(&slot->wait[i].beside) &&
            (found < 0 || since < *since_p)) {
            found = rank;
            *since_p = since;
        }
    }
    return found;
}

static int event_text(const event_t *event, double now, char *text, size_t size)
{
    double end = atomic_load(&event->end);
    bool inside = end == 0.0;
    return snprintf(
        text, size,
        "%s %s #%llu '%s' of %s (%lld bytes, step %lld%s%s) %s%.1f s%s",
        inside ? "is in" : "finished", event->what,
        (unsigned long long)event->sequence, event->label, event->group,
        (long long)event->bytes, (long long)event->step,
        event->source[0] != '\0' ? ", " : "", event->source,
        inside ? "since " : "", now - (inside ? event->begin : end),
        inside ? "" : " ago");
}

/* How far back the newest event is that has not ended; 0: all have. */
static int newest_inside(const loong_board_slot_t *slot)
{
    uint64_t events = atomic_load(&slot->events);
    for (int back = 0; back < RING && (uint64_t)back < events; back++) {
        uint64_t at = (events - 1 - (uint64_t)back) % RING;
        if (atomic_load(&slot->ring[at].end) == 0.0) {
            return back;
        }
    }
    return 0;
}

static bool slot_event(const loong_board_slot_t *slot, int back, double now,
                       char *text, size_t size)
{
    uint64_t events =
        atomic_load_explicit(&slot->events, memory_order_acquire);
    if (back >= RING || (uint64_t)back >= events) {
        return false;
    }
    event_text(&slot->ring[(events - 1 - (uint64_t)back) % RING], now, text,
               size);
    return true;
}

void loongi_board_describe(loong_board_t *board, int world_rank, double now,
                           char *text, size_t size)
{
    loong_board_slot_t *slot =
        board != NULL ? loongi_board_find(board, world_rank) : NULL;
    const char *heard = find_heard(board, world_rank);
    if (heard != NULL) {
        snprintf(text, size, "%s", heard);
    } else if (slot != NULL) {
        loongi_slot_describe(slot, now, text, size);
    } else {
        snprintf(text, size, "rank %d (on another machine)", world_rank);
    }
}

void loongi_slot_describe(const loong_board_slot_t *slot, double now,
                          char *text, size_t size)
{
    /* The text was written before the state that it explains. */
    loong_rank_state_t state = loongi_slot_state(slot);
    bool over = state == LOONG_RANK_FAILED || state == LOONG_RANK_ENDED;
    const char *why = over ? slot->text : "";
    int n = snprintf(text, size, "rank %d (pid %d, %s%s%s, step %lld) ",
                     loongi_slot_world_rank(slot), loongi_slot_pid(slot),
                     state_name(state),
                     why[0] != '\0' ? ": " : "", why,
                     (long long)atomic_load(&slot->step));
    if (n < 0 || (size_t)n >= size) {
        return;
    }
    if (!slot_event(slot, newest_inside(slot), now, text + n,
                    size - (size_t)n)) {
        snprintf(text + n, size - (size_t)n, "took part in nothing yet");
    }
}

bool loongi_board_event(loong_board_t *board, int world_rank, int back,
                        double now, char *text, size_t size)
{
    const loong_board_slot_t *slot = loongi_board_find(board, world_rank);
    return slot != NULL && slot_event(slot, back, now, text, size);
}

bool loongi_board_judge(loong_board_t *board,
                        const loong_board_verdict_t *verdict)
{
    int none = VERDICT_NONE;
    if (!atomic_compare_exchange_strong(&board->verdict_state, &none,
                                        VERDICT_WRITING)) {
        return false;
    }
    board->verdict = *verdict;
    atomic_store(&board->verdict_state, VERDICT_READY);
    return true;
}

bool loongi_board_claim_telling(loong_board_t *board)
{
    return !atomic_exchange(&board->told, true);
}

bool loongi_board_verdict(loong_board_t *board,
                          loong_board_verdict_t *verdict_p)
{
    if (atomic_load(&board->verdict_state) != VERDICT_READY) {
        return false;
    }
    *verdict_p = board->verdict;
    return true;
}
