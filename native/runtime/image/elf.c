/* Reading a shared object: its header and its segments. */
#include "runtime/image/elf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/image/machine.h"

enum { SHARED_OBJECT = 3, LOAD = 1, DYNAMIC = 2, TLS = 7, MOST_SEGMENTS = 64 };
#define MOST_ALIGNMENT ((size_t)1 << 21)

bool fc_elf_refuse(FcElf* elf, const char* format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(elf->problem, sizeof elf->problem, format, values);
  va_end(values);
  return false;
}

static bool is_power_of_two(FcElfWord n) { return n != 0 && (n & (n - 1)) == 0; }

/* ---- the header ---- */

static bool is_of_this_machine(const FcElfHeader* header) {
  const uint16_t one = 1;
  uint8_t order = *(const uint8_t*)&one ? 1 : 2, bits = sizeof(void*) == 8 ? 2 : 1;
  return header->ident[4] == bits && header->ident[5] == order && header->machine == fc_machine.number;
}

/* Hexagon: e_flags ends with the version of the CPU, whose two decimal digits are written as hexadecimal ones: 0x67. */
#ifdef __HEXAGON_ARCH__
enum { NEWEST_CPU = __HEXAGON_ARCH__ / 10 * 16 + __HEXAGON_ARCH__ % 10 };
#else
enum { NEWEST_CPU = 255 };
#endif

static const char* name_of(uint16_t machine) {
  switch (machine) {
    case 62: return "x86_64";
    case 183: return "aarch64";
    case 40: return "arm";
    case 243: return "riscv";
    case 22: return "s390";
    case 164: return "hexagon";
    default: return "another machine";
  }
}

static bool refuse_machine(FcElf* elf, const FcElfHeader* header) {
  return fc_elf_refuse(elf,
                       "it is built for %s (ELF machine %u, %d bits, %s-endian), and this is %s; build it with "
                       "--target %s",
                       name_of(header->machine), header->machine, header->ident[4] == 2 ? 64 : 32,
                       header->ident[5] == 2 ? "big" : "little", fc_machine.name, fc_machine.target);
}

static bool read_header(FcElf* elf, FcElfHeader* header) {
  if (elf->size < sizeof *header || memcmp(elf->data, "\177ELF", 4) != 0) {
    return fc_elf_refuse(elf, "it is not a whole ELF file; build it with farcall build");
  }
  memcpy(header, elf->data, sizeof *header);
  if (!is_of_this_machine(header)) {
    return refuse_machine(elf, header);
  }
  if (header->flags % 256 > NEWEST_CPU) {
    return fc_elf_refuse(
        elf, "it is built for %s v%x, and this server for v%x; build it for the target %s-linux-musl:%sv%x",
        fc_machine.name, (unsigned)header->flags % 256, NEWEST_CPU, fc_machine.name, fc_machine.name, NEWEST_CPU);
  }
  if (header->ident[6] != 1 || header->version != 1 || header->type != SHARED_OBJECT) {
    return fc_elf_refuse(elf, "it is no shared object (type %u); link it with -shared", header->type);
  }
  if (header->segment_size != sizeof(FcElfSegment) || header->segments == 0 || header->segments > MOST_SEGMENTS) {
    return fc_elf_refuse(elf, "it has %u segments with headers of %u bytes; expected 1 to %d, of %zu bytes",
                         header->segments, header->segment_size, MOST_SEGMENTS, sizeof(FcElfSegment));
  }
  if (header->segments_at > elf->size || elf->size - header->segments_at < header->segments * sizeof(FcElfSegment)) {
    return fc_elf_refuse(elf, "it is cut off: the table of its segments ends after the file; copy it again");
  }
  return true;
}

static FcElfSegment segment_of(const FcElf* elf, const FcElfHeader* header, uint32_t i) {
  FcElfSegment segment;
  memcpy(&segment, elf->data + (size_t)header->segments_at + i * sizeof segment, sizeof segment);
  return segment;
}

/* ---- segments ---- */

/* `before` is the part before this one, which must end on an earlier page when they need different access. */
static bool fits_behind(FcElf* elf, const FcElfPart* before, const FcElfPart* part, FcElfLimits limits) {
  size_t end = before->at + before->size;
  if (part->at < end) return fc_elf_refuse(elf, "its segments overlap, or are not in order; link it again");
  size_t last_page = (end - 1) & ~(limits.page - 1), first_page = part->at & ~(limits.page - 1);
  if (before->access == part->access || first_page > last_page) return true;
  return fc_elf_refuse(elf,
                       "two segments with different access share a page of %zu bytes of this machine; link it "
                       "with -Wl,-z,max-page-size=%zu",
                       limits.page, limits.page);
}

static bool check_segment(FcElf* elf, const FcElfSegment* segment) {
  if (segment->in_file > segment->in_memory) {
    return fc_elf_refuse(elf, "a segment has more bytes in the file than in memory; link it again");
  }
  if (segment->offset > elf->size || segment->in_file > elf->size - segment->offset) {
    return fc_elf_refuse(elf, "it is cut off: a segment ends after the file's %zu bytes; copy it again", elf->size);
  }
  if (segment->address > UINTPTR_MAX - segment->in_memory) {
    return fc_elf_refuse(elf, "a segment is larger than the address space; link it again");
  }
  if ((segment->flags & FC_ELF_WRITE) && (segment->flags & FC_ELF_EXECUTE)) {
    return fc_elf_refuse(elf, "a segment is both writable and executable; link it without -Wl,-N");
  }
  if (segment->alignment > 1 && (!is_power_of_two(segment->alignment) || segment->alignment > MOST_ALIGNMENT ||
                                 (segment->address - segment->offset) % segment->alignment != 0)) {
    return fc_elf_refuse(elf, "a segment has an alignment that is not possible; expected a power of two, at most %zu",
                         MOST_ALIGNMENT);
  }
  return true;
}

static bool add_part(FcElf* elf, const FcElfSegment* segment, FcElfLimits limits) {
  if (segment->in_memory == 0) return true;
  if (!check_segment(elf, segment)) return false;
  if (elf->count == FC_ELF_PARTS) return fc_elf_refuse(elf, "it has more than %d loaded segments", FC_ELF_PARTS);
  if (segment->alignment > elf->alignment) elf->alignment = (size_t)segment->alignment;
  if (elf->count == 0) elf->low = (uintptr_t)segment->address & ~(uintptr_t)(limits.page - 1);
  size_t at = (size_t)(segment->address - elf->low);
  FcElfPart part = {at, (size_t)segment->in_memory, (size_t)segment->offset, (size_t)segment->in_file, segment->flags};
  if (segment->address < elf->low || at > limits.most_span || part.size > limits.most_span - at) {
    return fc_elf_refuse(elf, "it spans more than the %zu bytes that are left for it; build a smaller one",
                         limits.most_span);
  }
  if (elf->count && !fits_behind(elf, &elf->parts[elf->count - 1], &part, limits)) return false;
  elf->parts[elf->count++] = part;
  elf->span = (at + part.size + limits.page - 1) & ~(limits.page - 1);
  return true;
}

static bool read_segments(FcElf* elf, const FcElfHeader* header, FcElfLimits limits, FcElfSegment* dynamic) {
  uint32_t tables = 0;
  for (uint32_t i = 0; i < header->segments; ++i) {
    FcElfSegment segment = segment_of(elf, header, i);
    if (segment.type == TLS) {
      return fc_elf_refuse(elf,
                           "it has thread-local storage (PT_TLS), which an image cannot have; C++ exceptions and "
                           "thread_local need it: build it with -fno-exceptions and without thread_local");
    }
    if (segment.type == LOAD && !add_part(elf, &segment, limits)) return false;
    if (segment.type != DYNAMIC) continue;
    if (tables++) return fc_elf_refuse(elf, "it has two dynamic segments; link it again");
    *dynamic = segment;
  }
  if (elf->count == 0) return fc_elf_refuse(elf, "it has no segment to load; link it with -shared");
  return tables == 1 || fc_elf_refuse(elf, "it has no dynamic segment; link it with -shared");
}

/* ---- places ---- */

bool fc_elf_place(const FcElf* elf, FcElfWord address, size_t size, size_t* at) {
  *at = (size_t)(address - elf->low);
  return address >= elf->low && *at <= elf->span && size <= elf->span - *at;
}

const FcElfPart* fc_elf_part(const FcElf* elf, size_t at, size_t size) {
  for (uint32_t i = 0; i < elf->count; ++i) {
    const FcElfPart* part = &elf->parts[i];
    if (at >= part->at && at - part->at <= part->size && size <= part->size - (at - part->at)) return part;
  }
  return NULL;
}

bool fc_elf_read(FcElf* elf, const uint8_t* data, size_t size, FcElfLimits limits) {
  FcElfHeader header;
  FcElfSegment dynamic = {0};
  memset(elf, 0, sizeof *elf);
  elf->data = data;
  elf->size = size;
  elf->alignment = limits.page;
  elf->begin = elf->end = FC_ELF_NOWHERE;
  return read_header(elf, &header) && read_segments(elf, &header, limits, &dynamic) &&
         fc_elf_read_dynamic(elf, &dynamic) && fc_machine_check(elf);
}
