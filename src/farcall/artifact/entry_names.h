/*
 * FC_ENTRY(name, row) defines the entry of a region: a function that calls farcall_call_region with its row of the table
 * farcall_regions. There may be hundreds. A C compiler takes 0.3 ms for each, so where an entry is two instructions
 * whose text is known, the assembler makes it: the row replaces the first argument, `self`, and the others stay in their
 * registers.
 */
#if defined(__ELF__) && defined(__LP64__) && (defined(__x86_64__) || defined(__aarch64__))

#define FC_REGION_BYTES 104
_Static_assert(sizeof(struct fc_region) == FC_REGION_BYTES, "the size of a row, which the assembler cannot ask for");

/* Both begin with the instruction that lets calls through pointers arrive here: a CPU without such checks ignores it. */
#if defined(__x86_64__)
#define FC_JUMP(row) "endbr64; leaq " row "(%rip), %rdi; jmp farcall_call_region\n"
#else
#define FC_JUMP(row) "hint #34; adrp x0, " row "; add x0, x0, :lo12:" row "; b farcall_call_region\n"
#endif

#define FC_TEXT_(value) #value
#define FC_TEXT(value) FC_TEXT_(value)
__asm__(".macro farcall_entry name, row\n"
        ".pushsection .text\n"
        ".p2align 4\n"
        ".globl \\name\n"
        ".type \\name, %function\n"
        "\\name:\n"
        ".cfi_startproc\n" FC_JUMP("farcall_regions+" FC_TEXT(FC_REGION_BYTES) "*\\row") ".cfi_endproc\n"
        ".size \\name, .-\\name\n"
        ".popsection\n"
        ".endm\n");

#define FC_ENTRY(name, row) __asm__("farcall_entry __tvm_ffi_" #name ", " #row);

#else

#define FC_ENTRY(name, row) \
  FARCALL_KERNEL(name) { return farcall_call_region(farcall_regions + (row), args, num_args, result); }

#endif
