/* Streams: work in a stream follows all earlier work in it, the events that it waits for, and what the host had waited
   for by then. A conflict with any other work is a race. */

enum { MOST_STREAMS = 64, MOST_WORKS = 4096 };
typedef struct {
    uint32_t seen[MOST_STREAMS]; /* how much of the work of each stream precedes */
} history;
typedef struct {
    uint32_t first, last, number; /* its rounds, and its number in its stream */
    int stream, is_copy;
} work;
static history streams[MOST_STREAMS], of_host;
static char is_blocking[MOST_STREAMS]; /* it and the default stream, number 0, wait for each other */
static int stream_count = 1;
static work works[MOST_WORKS]; /* the last ones, by round */
static int work_count;
static work under_way;

int noyau_stream_new(int blocks) {
    if (stream_count == MOST_STREAMS) return -1; /* its work is not checked */
    is_blocking[stream_count] = (char)blocks;
    return stream_count++;
}

static void join(history *one, const history *other) {
    for (int i = 0; i < stream_count; ++i)
        if (one->seen[i] < other->seen[i]) one->seen[i] = other->seen[i];
}

int noyau_stream_begin(int stream, int is_copy) {
    if (stream < 0 || stream_count == 1 || mode != SERIAL || is_in_work) return 0;
    history *own = streams + stream;
    join(own, &of_host);
    for (int i = 1; stream == 0 && i < stream_count; ++i)
        if (is_blocking[i]) join(own, streams + i);
    if (is_blocking[stream]) join(own, streams);
    now_round += 1 << 2;
    under_way = (work){now_round, 0, ++own->seen[stream], stream, is_copy};
    return is_in_work = 1;
}
void noyau_stream_end(void) {
    under_way.last = now_round;
    now_round += 1 << 2;
    if (work_count == MOST_WORKS) __real_memmove(works, works + 1, sizeof works - sizeof *works), --work_count;
    works[work_count++] = under_way;
    is_in_work = 0;
}

void noyau_stream_record(int stream, history *event) {
    if (stream >= 0) *event = streams[stream];
}
void noyau_stream_wait(int stream, const history *event) { join(stream < 0 ? &of_host : streams + stream, event); }
void noyau_stream_wait_all(void) {
    for (int i = 0; i < stream_count; ++i) join(&of_host, streams + i);
}
void noyau_stream_host(int stream) {
    if (stream < 0) noyau_stream_wait_all();
    else join(&of_host, streams + stream);
}

/* Reports an access by work in a stream to a cell of other work that does not precede it. */
static void meet_work(const block *b, const cell *c, int64_t offset, int how, int site) {
    const uint32_t round = c->round & ~(uint32_t)FLAGS;
    int low = 0, high = work_count;
    while (low < high) { /* the first that has not ended before the round */
        const int middle = (low + high) / 2;
        if (works[middle].last < round) low = middle + 1;
        else high = middle;
    }
    if (low == work_count || works[low].first > round) return;
    const work *was = works + low;
    if (was->number <= streams[under_way.stream].seen[was->stream]) return;
    const visit *other = c->write.owner ? &c->write : how == WRITE && c->reads[0].owner ? c->reads : 0;
    if (!other && how != ATOMIC && c->atomics[0].owner) other = c->atomics;
    if (!other) return;
    found("race", how, site, b, offset, other, other == &c->write ? WRITE : other == c->reads ? READ : ATOMIC, "%s", "");
    if (found_last < 0) return;
    table[found_last].changed += 1;
    name_sides(under_way.is_copy ? "a copy in stream %u" : "a kernel in stream %u", (uint32_t)under_way.stream,
               was->is_copy ? "a copy in stream %u" : "a kernel in stream %u", (uint32_t)was->stream);
}

/* A copy in a stream leaves its accesses in the cells, as a grid does. */
static void keep_copied(cell *c, int how, int site) {
    const visit comes = {1, 0, (uint16_t)site, 0};
    if (how == READ) c->reads[0] = comes;
    else c->write = comes;
}
