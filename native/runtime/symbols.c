/* Symbols registered by name: those of the system library, and context symbols. None is ever removed. */
#include <stdlib.h>

#include "runtime/module.h"

typedef struct Symbol {
  struct Symbol* next;
  void* value;
  char name[];
} Symbol;

enum { BUCKETS = 4096 };
static Symbol* system_symbols[BUCKETS];
static Symbol* context_symbols;
static FcMutex symbols_lock = FC_MUTEX_INIT;

static Symbol** bucket_of(const char* name) { return &system_symbols[fc_hash_bytes(name, strlen(name)) % BUCKETS]; }

static Symbol* find(Symbol* in, const char* name) {
  while (in && strcmp(in->name, name) != 0) in = in->next;
  return in;
}

static int set(Symbol** list, const char* name, void* value) {
  fc_mutex_lock(&symbols_lock);
  Symbol* symbol = find(*list, name);
  if (!symbol) {
    symbol = malloc(sizeof *symbol + strlen(name) + 1);
    if (symbol) {
      symbol->next = *list;
      strcpy(symbol->name, name);
      *list = symbol;
    }
  }
  if (symbol) symbol->value = value;
  fc_mutex_unlock(&symbols_lock);
  if (symbol) return 0;
  fc_error_no_memory();
  return fc_registration_failed();
}

void* fc_system_symbol(const char* name) {
  fc_mutex_lock(&symbols_lock);
  Symbol* symbol = find(*bucket_of(name), name);
  void* value = symbol ? symbol->value : NULL;
  fc_mutex_unlock(&symbols_lock);
  return value;
}

/* Both visit without holding the lock: a visitor may throw. Symbols are never freed, and new ones go to the front. */
void fc_context_each(void (*visit)(void* context, const char* name, void* symbol), void* context) {
  fc_mutex_lock(&symbols_lock);
  const Symbol* first = context_symbols;
  fc_mutex_unlock(&symbols_lock);
  for (const Symbol* s = first; s; s = s->next) visit(context, s->name, s->value);
}

void fc_system_each(FcNameVisitor visit, void* context) {
  for (size_t i = 0; i < BUCKETS; ++i) {
    fc_mutex_lock(&symbols_lock);
    const Symbol* first = system_symbols[i];
    fc_mutex_unlock(&symbols_lock);
    for (const Symbol* s = first; s; s = s->next) {
      if (!visit(context, s->name, strlen(s->name))) return;
    }
  }
}

int TVMFFIEnvModRegisterContextSymbol(const char* name, void* symbol) { return set(&context_symbols, name, symbol); }

int TVMFFIEnvModRegisterSystemLibSymbol(const char* name, void* symbol) { return set(bucket_of(name), name, symbol); }

/* In TVM FFI, Python registers these functions of its own. We accept and ignore them: our core calls Python itself. */
int TVMFFIEnvRegisterCAPI(const char* name, void* symbol) {
  static const char* const names[] = {"PyErr_CheckSignals", "PyGILState_Ensure", "PyGILState_Release"};
  (void)symbol;
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    if (strcmp(name, names[i]) == 0) return 0;
  }
  fc_error_format("ValueError",
                  "`%s` is not a function of the host; expected PyErr_CheckSignals, PyGILState_Ensure or "
                  "PyGILState_Release",
                  name);
  return fc_registration_failed();
}
