/*
 * Map and Dict.
 *
 * Libraries that were built for TVM FFI search and change these objects with code of their own. So the layout is part
 * of the ABI, including the way in which collisions are resolved (facts: TVMFFIMapCell in c_api.h, and below):
 *
 *  - A row: at most 4 pairs, one after the other.
 *  - A table: blocks of 16 places, each block 16 bytes of marks and then 16 items of 48 bytes. A key's first place
 *    is its hash times the golden ratio, shifted. All keys with the same first place form a chain. The low 7 bits of
 *    an item's mark give the distance to the chain's next item (an index into `distances`; 0 is the end); its top bit
 *    is set in all items but the first. A chain's first item is always in its first place: an item of another chain
 *    that is there moves away. The items are also linked in insertion order.
 */
#include <stdlib.h>

#include "runtime/runtime.h"

#define ROW_TAG (UINT64_C(1) << 63)
#define NOWHERE UINT64_MAX
enum { ROW_MAX = 4, BLOCK = 16, DISTANCES = 126, EMPTY = 0xff, CHAINED = 0x80, JUMP = 0x7f, FIRST_TABLE = 8 };

typedef struct {
  TVMFFIAny key, value;
} Pair;

typedef struct {
  Pair pair;
  uint64_t previous, next;
} Item;

typedef struct {
  uint8_t marks[BLOCK];
  Item items[BLOCK];
} Block;

typedef struct {
  TVMFFIObject header;
  TVMFFIMapCell cell;
  uint32_t shift; /* from here on only in a table */
  uint64_t first, last;
} Table;

/* A table that began as a row keeps the row's allocation: a library may have converted it. */
typedef struct {
  TVMFFIObject header;
  TVMFFIMapCell cell;
  Pair pairs[ROW_MAX];
} Row;

_Static_assert(sizeof(Block) == 784 && offsetof(Table, shift) == 56 && sizeof(Table) == 80, "the layout is the ABI's");
_Static_assert(offsetof(Table, last) == 72 && offsetof(Row, pairs) == 56 && sizeof(Row) >= sizeof(Table), "the same");

/* 0 to 15, the triangular numbers from 21 to 2628, and then steps that grow by about 2.25. */
static const uint64_t far_distances[] = {
    8515,
    19110,
    42778,
    96141,
    216153,
    486591,
    1092981,
    2458653,
    5532801,
    12442566,
    27993903,
    62983476,
    141717030,
    318844378,
    717352503,
    1614057336,
    3631522476,
    8170957530,
    18384510628,
    41364789378,
    93070452520,
    209408356380,
    471168559170,
    1060128894105,
    2385289465695,
    5366898840628,
    12075518705635,
    27169915244790,
    61132312065111,
    137547689707000,
    309482283181501,
    696335127828753,
    1566753995631385,
    3525196511162271,
    7931691992677701,
    17846306936293605,
    40154190677507445,
    90346928918121501,
    203280589587557251,
    457381325854679626,
    1029107982097042876,
    2315492959180353330,
    5209859154120846435,
};

enum { NEAR = 16, TRIANGLES = DISTANCES - (int)(sizeof far_distances / sizeof *far_distances) };

static uint64_t distance(uint32_t i) {
  if (i < NEAR) return i;
  uint64_t n = i - NEAR + 6;
  return i < TRIANGLES ? n * (n + 1) / 2 : i < DISTANCES ? far_distances[i - TRIANGLES] : 0;
}

/* ---- a table's places ---- */

static Table* table_of(const TVMFFIObject* map) { return (Table*)map; }
static bool is_row(const TVMFFIObject* map) { return (table_of(map)->cell.slots & ROW_TAG) != 0; }

static uint8_t* mark(const Table* t, uint64_t at) { return &((Block*)t->cell.data)[at / BLOCK].marks[at % BLOCK]; }
static Item* item(const Table* t, uint64_t at) { return &((Block*)t->cell.data)[at / BLOCK].items[at % BLOCK]; }

static uint64_t home(const Table* t, const TVMFFIAny* key) {
  return (fc_any_hash(key) * UINT64_C(11400714819323198485)) >> t->shift;
}

/* The next place of a chain; NOWHERE at its end. */
static uint64_t follow(const Table* t, uint64_t at) {
  uint64_t step = distance(*mark(t, at) & JUMP);
  return step ? (at + step) % t->cell.slots : NOWHERE;
}

static uint64_t before_in_chain(const Table* t, uint64_t at) {
  uint64_t previous = home(t, &item(t, at)->pair.key);
  for (uint64_t next = follow(t, previous); next != at; next = follow(t, next)) previous = next;
  return previous;
}

/* The nearest free place for the next item of a chain; stores the distance in the mark of `from`. */
static uint64_t extend(Table* t, uint64_t from) {
  for (uint32_t jump = 1; jump < DISTANCES; ++jump) {
    uint64_t at = (from + distance(jump)) % t->cell.slots;
    if (*mark(t, at) != EMPTY) continue;
    *mark(t, from) = (uint8_t)((*mark(t, from) & CHAINED) | jump);
    return at;
  }
  return NOWHERE;
}

/* ---- the order of insertion ---- */

static void link_last(Table* t, uint64_t at) {
  item(t, at)->previous = t->last;
  item(t, at)->next = NOWHERE;
  *(t->last == NOWHERE ? &t->first : &item(t, t->last)->next) = at;
  t->last = at;
}

/* Links the neighbours of `moved` to its new place `at`; NOWHERE unlinks it. */
static void tell_neighbours(Table* t, const Item* moved, uint64_t at) {
  *(moved->previous == NOWHERE ? &t->first : &item(t, moved->previous)->next) = at == NOWHERE ? moved->next : at;
  *(moved->next == NOWHERE ? &t->last : &item(t, moved->next)->previous) = at == NOWHERE ? moved->previous : at;
}

static void move_item(Table* t, uint64_t from, uint64_t to) {
  *item(t, to) = *item(t, from);
  tell_neighbours(t, item(t, to), to);
}

/* ---- search ---- */

static uint64_t find_place(const Table* t, const TVMFFIAny* key) {
  if (!t->cell.size) return NOWHERE;
  uint64_t at = home(t, key);
  if (*mark(t, at) & CHAINED) return NOWHERE; /* empty, or another chain's */
  while (at != NOWHERE && !fc_any_equal(key, &item(t, at)->pair.key)) at = follow(t, at);
  return at;
}

static Pair* find_pair(const TVMFFIObject* map, const TVMFFIAny* key) {
  const Table* t = table_of(map);
  if (!is_row(map)) {
    uint64_t at = find_place(t, key);
    return at == NOWHERE ? NULL : &item(t, at)->pair;
  }
  Pair* pairs = t->cell.data;
  for (uint64_t i = 0; i < t->cell.size; ++i) {
    if (fc_any_equal(key, &pairs[i].key)) return &pairs[i];
  }
  return NULL;
}

const TVMFFIAny* fc_map_find(const TVMFFIObject* map, const TVMFFIAny* key) {
  Pair* pair = find_pair(map, key);
  return pair ? &pair->value : NULL;
}

bool fc_map_next(const TVMFFIObject* map, FcMapCursor* cursor) {
  const Table* t = table_of(map);
  bool row = is_row(map);
  if (!cursor->begun) {
    *cursor = (FcMapCursor){.at = row ? 0 : t->first, .left = t->cell.size, .begun = true};
  }
  if (!cursor->left || (!row && cursor->at == NOWHERE)) return false;
  const Pair* pair = row ? (Pair*)t->cell.data + cursor->at : &item(t, cursor->at)->pair;
  cursor->key = &pair->key;
  cursor->value = &pair->value;
  cursor->at = row ? cursor->at + 1 : item(t, cursor->at)->next;
  --cursor->left;
  return true;
}

/* ---- destruction ---- */

static void clear_pairs(TVMFFIObject* map) {
  FcMapCursor cursor = {.begun = false};
  while (fc_map_next(map, &cursor)) {
    fc_any_clear((TVMFFIAny*)cursor.key);
    fc_any_clear((TVMFFIAny*)cursor.value);
  }
}

static void map_delete(void* self, int flags) {
  Table* t = self;
  if (flags & kTVMFFIObjectDeleterFlagBitMaskStrong) {
    clear_pairs(self);
    if (t->cell.data_deleter) t->cell.data_deleter(t->cell.data);
  }
  if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) free(self);
}

/* ---- a new map ---- */

int fc_map_new(int32_t type_index, TVMFFIObjectHandle* out) {
  Row* row = calloc(1, sizeof *row);
  if (!row) {
    fc_error_no_memory();
    return -1;
  }
  fc_object_init(&row->header, type_index, map_delete);
  row->cell = (TVMFFIMapCell){row->pairs, 0, ROW_MAX | ROW_TAG, NULL};
  *out = row;
  return 0;
}

static bool make_table(Table* t, uint64_t slots, uint32_t shift) {
  size_t blocks = (size_t)((slots + BLOCK - 1) / BLOCK);
  Block* data = slots < ROW_TAG / sizeof(Block) ? malloc(blocks * sizeof *data) : NULL;
  if (!data) return false;
  for (size_t i = 0; i < blocks; ++i) memset(data[i].marks, EMPTY, sizeof data[i].marks);
  t->cell = (TVMFFIMapCell){data, 0, slots, free};
  t->shift = shift;
  t->first = t->last = NOWHERE;
  return true;
}

/* ---- insertion: each function takes ownership of the pair only when it succeeds ---- */

static void place(Table* t, uint64_t at, uint8_t new_mark, Pair pair) {
  *mark(t, at) = new_mark;
  item(t, at)->pair = pair;
  link_last(t, at);
  ++t->cell.size;
}

/* Frees `at` by moving the rest of another chain, from `at` on, to other places. False when there is no room. */
static bool evict(Table* t, uint64_t at) {
  uint64_t tail = before_in_chain(t, at);
  uint64_t from = at;
  while (from != NOWHERE) {
    uint64_t next = follow(t, from);
    uint64_t to = extend(t, tail);
    if (to == NOWHERE) return false;
    move_item(t, from, to);
    *mark(t, to) = CHAINED;
    *mark(t, from) = from == at ? CHAINED : EMPTY; /* `at` stays marked, so that no item moves there */
    tail = to;
    from = next;
  }
  return true;
}

/* False when there is no free place within reach. The table may then be inconsistent: the caller makes a larger one. */
static bool insert_new(Table* t, Pair pair) {
  uint64_t at = home(t, &pair.key);
  if (*mark(t, at) != EMPTY && (t->cell.size + 1) * 100 > t->cell.slots * 99) return false;
  if (*mark(t, at) == EMPTY) {
    place(t, at, 0, pair);
    return true;
  }
  if (*mark(t, at) & CHAINED) {
    if (!evict(t, at)) return false;
    place(t, at, 0, pair);
    return true;
  }
  uint64_t tail = at;
  for (uint64_t next = follow(t, at); next != NOWHERE; next = follow(t, next)) tail = next;
  at = extend(t, tail);
  if (at == NOWHERE) return false;
  place(t, at, CHAINED, pair);
  return true;
}

/* Moves all pairs, in order, to a new table of at least that size. */
static bool rebuild(TVMFFIObject* map, uint64_t slots, uint32_t shift) {
  Table bigger = {.header = {.type_index = map->type_index}};
  for (;; slots *= 2, --shift) {
    if (!make_table(&bigger, slots, shift)) return false;
    FcMapCursor cursor = {.begun = false};
    bool good = true;
    while (good && fc_map_next(map, &cursor)) good = insert_new(&bigger, (Pair){*cursor.key, *cursor.value});
    if (good) break;
    free(bigger.cell.data);
  }
  Table* t = table_of(map);
  if (t->cell.data_deleter) t->cell.data_deleter(t->cell.data);
  t->cell = bigger.cell;
  t->shift = bigger.shift;
  t->first = bigger.first;
  t->last = bigger.last;
  return true;
}

static bool insert(TVMFFIObject* map, Pair pair) {
  Table* t = table_of(map);
  if (is_row(map)) {
    Pair* pairs = t->cell.data;
    if (t->cell.size < (t->cell.slots & ~ROW_TAG)) {
      pairs[t->cell.size++] = pair;
      return true;
    }
    if (!rebuild(map, FIRST_TABLE, 61)) return false;
  }
  while (!t->cell.slots || !insert_new(t, pair)) {
    bool first = t->cell.slots == 0;
    if (!rebuild(map, first ? FIRST_TABLE : t->cell.slots * 2, first ? 61 : t->shift - 1)) return false;
  }
  return true;
}

int fc_map_set(TVMFFIObject* map, TVMFFIAny key, TVMFFIAny value) {
  Pair* known = find_pair(map, &key);
  if (known) {
    TVMFFIAny old = known->value;
    known->value = value;
    fc_any_clear(&key);
    fc_any_clear(&old); /* last: a deleter may look at the map */
    return 0;
  }
  if (insert(map, (Pair){key, value})) return 0;
  fc_any_clear(&key);
  fc_any_clear(&value);
  fc_error_no_memory();
  return -1;
}

/* ---- removal ---- */

static void erase_from_row(TVMFFIMapCell* cell, Pair* pair) {
  Pair* end = (Pair*)cell->data + --cell->size;
  memmove(pair, pair + 1, (size_t)(end - pair) * sizeof *pair);
}

/* Moves the chain's last item to the removed item's place, so that the chain stays connected. */
static void erase_from_table(Table* t, uint64_t at) {
  uint64_t last = at, previous = NOWHERE;
  for (uint64_t next = follow(t, at); next != NOWHERE; next = follow(t, next)) {
    previous = last;
    last = next;
  }
  if (previous == NOWHERE && (*mark(t, at) & CHAINED)) previous = before_in_chain(t, at);
  tell_neighbours(t, item(t, at), NOWHERE);
  if (last != at) move_item(t, last, at);
  if (previous != NOWHERE) *mark(t, previous) &= CHAINED;
  *mark(t, last) = EMPTY;
  --t->cell.size;
}

bool fc_map_erase(TVMFFIObject* map, const TVMFFIAny* key) {
  Pair* pair = find_pair(map, key);
  if (!pair) return false;
  Pair old = *pair;
  if (is_row(map)) {
    erase_from_row(&table_of(map)->cell, pair);
  } else {
    erase_from_table(table_of(map), find_place(table_of(map), key));
  }
  fc_any_clear(&old.key);
  fc_any_clear(&old.value);
  return true;
}
