/* Two neighbours of 16 bits as one word, the first one in its lower half. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error "pairs of cells are read as words of a little-endian machine"
#endif
#include <string.h>
static inline uint32_t noyau_pair(const uint16_t *cells)
{
    uint32_t pair;
    memcpy(&pair, cells, sizeof pair);
    return pair;
}

static inline void noyau_store_pair(uint16_t *cells, uint32_t pair)
{
    memcpy(cells, &pair, sizeof pair);
}
