/* Memory of a thread, which begins with a line of 64 bytes: vectors that lie in two lines take as long as two. Before
   it stands what malloc gave, which is given back. */
static inline void *noyau_take(size_t bytes)
{
    char *taken = malloc(bytes + 64 + sizeof(void *));
    if (!taken) return NULL;
    char *line = taken + sizeof(void *);
    line += -(uintptr_t)line & 63;
    ((void **)line)[-1] = taken;
    return line;
}

static inline void noyau_give_back(void *line)
{
    if (line) free(((void **)line)[-1]);
}
