# Functions of assembler: with several names, of which some have no type or size, and with none of both.
        .text
        .globl  untyped
untyped:
        mov     %rdi, %rcx
.Lagain:
        dec     %rcx
        jnz     .Lagain
        ret
        .globl  public_name
        .type   public_name, @function
public_name:
        .globl  __internal_alias
        .type   __internal_alias, @function
__internal_alias:
        mov     %rdi, %rax
        ret
        .size   public_name, . - public_name
        .size   __internal_alias, . - __internal_alias
        .globl  bare_public
bare_public:
        .type   implementation, @function
implementation:
        mov     %rdi, %rax
        ret
        .size   implementation, . - implementation
        .section .note.GNU-stack, "", @progbits
