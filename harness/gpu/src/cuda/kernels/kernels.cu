// What GPUs do to elements: pack, reduce, fill, check; and what keeps them busy.
//
// A kernel takes one structure, as `harness/gpu/src/cuda/work.rs` has it. Threads go over the elements in
// strides, so that a grid of any size does the whole work, and none waits for another: compiled for a
// processor (see processor.h) they run one after the other. Sixteen bytes are moved at a time where the
// addresses allow it. What comes out is, bit for bit, what kernel.rs, cast.rs and pattern.rs compute.

#ifdef __CUDACC__
#include "device.h"
#else
#include "processor.h"
#endif

struct Half {
    u16 bits;
};
struct Brain {
    u16 bits;
};

// What a type is computed in: float for the 16-bit types, else itself.
template <typename T>
struct Wide {
    typedef T Type;
};
template <>
struct Wide<Half> {
    typedef float Type;
};
template <>
struct Wide<Brain> {
    typedef float Type;
};

template <typename T>
INLINE T widen(T number) {
    return number;
}
INLINE float widen(Half number) { return widen_half(number.bits); }
INLINE float widen(Brain number) { return of_bits((u32)number.bits << 16); }

template <typename T>
INLINE void narrow(T wide, T& number) {
    number = wide;
}
INLINE void narrow(float wide, Half& number) { number.bits = narrow_half(wide); }
INLINE void narrow(float wide, Brain& number) {
    u32 bits = bits_of(wide), rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    number.bits = wide == wide ? rounded : bits >> 16 | 0x40;
}

INLINE u32 wrapped(u8 number) { return number; }
INLINE u32 wrapped(int number) { return number; }
INLINE u64 wrapped(i64 number) { return number; }
INLINE float wrapped(float number) { return number; }
INLINE double wrapped(double number) { return number; }

enum { SUM, MIN, MAX, PRODUCT };

// The first stays where one of the two is NaN.
template <int COMBINE, typename W>
INLINE W pair(W mine, W other) {
    switch (COMBINE) {
        case MIN: return other < mine ? other : mine;
        case MAX: return other > mine ? other : mine;
        case PRODUCT: return (W)(wrapped(mine) * wrapped(other));
        default: return (W)(wrapped(mine) + wrapped(other));
    }
}

template <int COMBINE, typename T>
INLINE T combine(T mine, T other) {
    T sum;
    narrow(pair<COMBINE>(widen(mine), widen(other)), sum);
    return sum;
}

INLINE float scaled(float number, double factor) { return number * (float)factor; }
INLINE double scaled(double number, double factor) { return number * factor; }
INLINE u8 scaled(u8 number, double) { return number; }
INLINE int scaled(int number, double) { return number; }
INLINE i64 scaled(i64 number, double) { return number; }

template <typename T>
INLINE T scale(T number, double factor) {
    T product;
    narrow(scaled(widen(number), factor), product);
    return product;
}

// Sixteen bytes, in elements.
template <typename T>
union Line {
    uint4 bytes;
    T lanes[16 / sizeof(T)];
};

INLINE u64 thread() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
INLINE u64 threads() { return (u64)gridDim.x * blockDim.x; }
INLINE bool is_aligned(const void* address) { return (u64)address % 16 == 0; }

// Elements before the first line that begins on sixteen bytes.
template <typename T>
INLINE u64 head(const T* address, u64 elements) {
    u64 before = (16 - (u64)address % 16) % 16 / sizeof(T);
    return before < elements ? before : elements;
}

// ---- reduce: several vectors, in their order, into one, which may be the first of them

struct Reduce {
    void* into;
    const void* from[9];
    u64 elements;
    u64 sources;
};

template <int COMBINE, typename T>
INLINE void reduce(const Reduce& work) {
    const u64 lanes = 16 / sizeof(T);
    T* into = (T*)work.into;
    u64 before = head(into, work.elements), lines = (work.elements - before) / lanes;
    ONE_BY_ONE for (u64 source = 0; source < work.sources; ++source)
        if (!is_aligned((const T*)work.from[source] + before)) lines = 0;
    ONE_BY_ONE for (u64 at = thread(); at < lines; at += threads()) {
        Line<T> sum, next;
        sum.bytes = ((const uint4*)((const T*)work.from[0] + before))[at];
        SOME_AT_ONCE for (u64 source = 1; source < work.sources; ++source) {
            next.bytes = ((const uint4*)((const T*)work.from[source] + before))[at];
            ALL_AT_ONCE for (u64 lane = 0; lane < lanes; ++lane)
                sum.lanes[lane] = combine<COMBINE>(sum.lanes[lane], next.lanes[lane]);
        }
        ((uint4*)(into + before))[at] = sum.bytes;
    }
    ONE_BY_ONE for (u64 left = thread(); left < work.elements - lines * lanes; left += threads()) {
        u64 at = left < before ? left : left + lines * lanes;
        T sum = ((const T*)work.from[0])[at];
        ONE_BY_ONE for (u64 source = 1; source < work.sources; ++source)
            sum = combine<COMBINE>(sum, ((const T*)work.from[source])[at]);
        into[at] = sum;
    }
}

#define REDUCE(name, T)                                                           \
    KERNEL AT_ONCE(8) reduce_sum_##name(WORK(Reduce) work) { reduce<SUM, T>(work); }         \
    KERNEL AT_ONCE(8) reduce_min_##name(WORK(Reduce) work) { reduce<MIN, T>(work); }         \
    KERNEL AT_ONCE(8) reduce_max_##name(WORK(Reduce) work) { reduce<MAX, T>(work); }         \
    KERNEL AT_ONCE(8) reduce_product_##name(WORK(Reduce) work) { reduce<PRODUCT, T>(work); }

REDUCE(f32, float)
REDUCE(f64, double)
REDUCE(f16, Half)
REDUCE(bf16, Brain)
REDUCE(i32, int)
REDUCE(i64, i64)
REDUCE(u8, u8)

// ---- pack: pieces of many tensors from one place to another, cast and multiplied, in one launch

struct Piece {
    const void* from;
    void* into;
    u64 elements;
};

struct Pack {
    const Piece* pieces;
    u64 count;
    double factor;
};

// Rounded to odd, so that rounding to 16 bits afterwards rounds once.
INLINE float to_odd(float number) { return number; }
INLINE float to_odd(double number) {
    float nearest = (float)number;
    u32 bits = bits_of(nearest);
    bool away = (nearest < 0 ? -(double)nearest : (double)nearest) > (number < 0 ? -number : number);
    return nearest == number ? nearest : of_bits((bits - away) | 1);
}

// The factor is applied in the narrower type, where a data plane works.
template <typename T>
INLINE void convert(T from, T& into, double factor) {
    into = scale(from, factor);
}
template <typename F, typename H>
INLINE void narrowed(F from, H& into, double factor) {
    narrow(to_odd(from), into);
    into = scale(into, factor);
}
INLINE void convert(float from, Half& into, double factor) { narrowed(from, into, factor); }
INLINE void convert(float from, Brain& into, double factor) { narrowed(from, into, factor); }
INLINE void convert(double from, Half& into, double factor) { narrowed(from, into, factor); }
INLINE void convert(double from, Brain& into, double factor) { narrowed(from, into, factor); }
INLINE void convert(Half from, float& into, double factor) { into = widen(scale(from, factor)); }
INLINE void convert(Brain from, float& into, double factor) { into = widen(scale(from, factor)); }
INLINE void convert(Half from, double& into, double factor) { into = widen(scale(from, factor)); }
INLINE void convert(Brain from, double& into, double factor) { into = widen(scale(from, factor)); }

// What a thread moves at once: whole lines of the wider type, and no less than eight bytes of the other one, so that
// neighbours touch neighbouring bytes.
template <u64 BYTES>
struct Moved {
    typedef uint4 Word;
};
template <>
struct Moved<8> {
    typedef uint2 Word;
};
template <typename T, u64 LANES>
union Group {
    typedef typename Moved<sizeof(T) * LANES>::Word Word;
    Word words[sizeof(T) * LANES / sizeof(Word)];
    T lanes[LANES];
};

INLINE constexpr u64 larger(u64 a, u64 b) { return a > b ? a : b; }

// A block takes a piece after the other.
template <typename F, typename T>
INLINE void pack(const Pack& work) {
    const u64 wider = larger(sizeof(F), sizeof(T)), narrower = sizeof(F) + sizeof(T) - wider;
    const u64 lanes = larger(16 / wider, 8 / narrower);
    typedef Group<F, lanes> In;
    typedef Group<T, lanes> Out;
    const u64 in_words = sizeof(In) / sizeof(typename In::Word), out_words = sizeof(Out) / sizeof(typename Out::Word);
    // Short reads and writes are made two at a time.
    const u64 at_once = sizeof(In) < 16 || sizeof(Out) < 16 ? 2 : 1;
    Piece next_piece = {0, 0, 0};
    if (blockIdx.x < work.count) next_piece = work.pieces[blockIdx.x];
    ONE_BY_ONE for (u64 piece = blockIdx.x; piece < work.count; piece += gridDim.x) {
        const F* from = (const F*)next_piece.from;
        T* into = (T*)next_piece.into;
        u64 elements = next_piece.elements, before = head(into, elements);
        // The table is read while elements move.
        if (piece + gridDim.x < work.count) next_piece = work.pieces[piece + gridDim.x];
        u64 groups = is_aligned(from + before) ? (elements - before) / lanes : 0;
        ONE_BY_ONE for (u64 first = threadIdx.x; first < groups; first += blockDim.x * at_once) {
            In in[at_once];
            ALL_AT_ONCE for (u64 next = 0; next < at_once; ++next) {
                u64 group = first + next * blockDim.x;
                if (group < groups) {
                    ALL_AT_ONCE for (u64 word = 0; word < in_words; ++word)
                        in[next].words[word] = ((const typename In::Word*)(from + before))[group * in_words + word];
                }
            }
            ALL_AT_ONCE for (u64 next = 0; next < at_once; ++next) {
                u64 group = first + next * blockDim.x;
                if (group >= groups) break;
                Out out;
                ALL_AT_ONCE for (u64 lane = 0; lane < lanes; ++lane)
                    convert(in[next].lanes[lane], out.lanes[lane], work.factor);
                ALL_AT_ONCE for (u64 word = 0; word < out_words; ++word)
                    ((typename Out::Word*)(into + before))[group * out_words + word] = out.words[word];
            }
        }
        ONE_BY_ONE for (u64 left = threadIdx.x; left < elements - groups * lanes; left += blockDim.x) {
            u64 at = left < before ? left : left + groups * lanes;
            convert(from[at], into[at], work.factor);
        }
    }
}

#define PACK(from, F, into, T) \
    KERNEL pack_##from##_##into(WORK(Pack) work) { pack<F, T>(work); }

PACK(f32, float, f32, float)
PACK(f64, double, f64, double)
PACK(f16, Half, f16, Half)
PACK(bf16, Brain, bf16, Brain)
PACK(i32, int, i32, int)
PACK(i64, i64, i64, i64)
PACK(u8, u8, u8, u8)
PACK(f32, float, f16, Half)
PACK(f32, float, bf16, Brain)
PACK(f64, double, f16, Half)
PACK(f64, double, bf16, Brain)
PACK(f16, Half, f32, float)
PACK(bf16, Brain, f32, float)
PACK(f16, Half, f64, double)
PACK(bf16, Brain, f64, double)

// ---- busy: time passes, and nothing else happens

struct Busy {
    // When it begins, on the device's clock; none for now.
    const u64* from;
    // Where to write when it is over.
    u64* into;
    u64 length_ns;
};

KERNEL busy(WORK(Busy) work) {
    u64 end = (work.from ? *work.from : now_ns()) + work.length_ns;
    while (now_ns() < end) rest();
    if (thread() == 0) *work.into = end;
}

// ---- fill and check: the data of pattern.rs

struct Pattern {
    u64 first;
    u64 elements;
    u64 seed;
    u32 ranks;
    u32 bits;
    u64 combine;
};

struct Fill {
    void* into;
    Pattern pattern;
    u64 rank;
};

// The upper half of an index, with the seed. Blocks of 2048 elements share that of their first index.
INLINE u32 upper(const Pattern& of, u64 offset) {
    u64 start = of.first + offset / 2048 * 2048;
    return (u32)(start >> 32) * 0x9E3779B9u ^ (u32)of.seed;
}

// The same for all ranks.
INLINE u32 mix(const Pattern& of, u64 offset, u32 high) {
    u32 folded = ((u32)(of.first + offset) ^ high) * 0x85EBCA6Bu;
    return (folded ^ folded >> 15) * 0x2C1B3C6Du ^ (u32)(of.seed >> 32);
}

// A number of less than 23 bits, without an offset.
INLINE void integer(u32 drawn, int middle, float& into) {
    into = of_bits(drawn ^ 0x4B000000u) - (float)(8388608 + middle);
}
template <typename T>
INLINE void integer(u32 drawn, int middle, T& into) {
    into = (T)((int)drawn - middle);
}

// A power of two for a product of floating-point numbers, and an odd number for one of integers.
INLINE void factor(const Pattern& of, u32 rank, u32 mixed, u32 own, float& into) {
    u32 turned_by = mixed % of.ranks + rank, place = turned_by - (turned_by < of.ranks ? 0 : of.ranks);
    u32 exponent = place < 14 ? (own >> 16) % 3 : 1;
    into = (own >> 31 ? -1.0f : 1.0f) * (exponent == 0 ? 0.5f : exponent == 2 ? 2.0f : 1.0f);
}
INLINE void factor(const Pattern& of, u32 rank, u32 mixed, u32 own, double& into) {
    float number;
    factor(of, rank, mixed, own, number);
    into = number;
}
template <typename T>
INLINE void factor(const Pattern&, u32, u32, u32 own, T& into) {
    into = (T)(own >> 28 | 1);
}

// What a rank contributes: it turns and flips the mixed bits in its own way.
template <int COMBINE, typename T>
INLINE T value(const Pattern& of, u32 rank, u32 mixed) {
    u32 turn = rank * 5, flip = (rank + 1) * 0x9E3779B1u;
    typename Wide<T>::Type wide;
    if (COMBINE == PRODUCT) {
        factor(of, rank, mixed, turned(mixed, turn) ^ flip, wide);
    } else {
        // The upper bits.
        u32 drawn = (turned(mixed, turn + of.bits) & ((1u << of.bits) - 1)) ^ flip >> (32 - of.bits);
        integer(drawn, COMBINE == SUM ? 0 : 1 << (of.bits - 1), wide);
    }
    T result;
    narrow(wide, result);
    return result;
}

// Whole lines where all elements share the upper half of their index.
template <int COMBINE, typename T>
INLINE void fill(const Fill& work) {
    const u64 lanes = 16 / sizeof(T);
    const Pattern& of = work.pattern;
    const u32 rank = (u32)work.rank, high = upper(of, 0);
    T* into = (T*)work.into;
    u64 before = head(into, of.elements);
    u64 lines = high == upper(of, of.elements - 1) ? (of.elements - before) / lanes : 0;
    ONE_BY_ONE for (u64 line = thread(); line < lines; line += threads()) {
        Line<T> out;
        ALL_AT_ONCE for (u64 lane = 0; lane < lanes; ++lane)
            out.lanes[lane] = value<COMBINE, T>(of, rank, mix(of, before + line * lanes + lane, high));
        ((uint4*)(into + before))[line] = out.bytes;
    }
    ONE_BY_ONE for (u64 left = thread(); left < of.elements - lines * lanes; left += threads()) {
        u64 at = left < before ? left : left + lines * lanes;
        into[at] = value<COMBINE, T>(of, rank, mix(of, at, upper(of, at)));
    }
}

template <typename T>
INLINE void fill(const Fill& work) {
    switch (work.pattern.combine) {
        case SUM: return fill<SUM, T>(work);
        case PRODUCT: return fill<PRODUCT, T>(work);
        // The same for maxima.
        default: return fill<MIN, T>(work);
    }
}

struct Check {
    const void* got;
    // How many are wrong, and the offset of the first one.
    u64* wrong;
    Pattern pattern;
    double factor;
};

// What a thread has found, as in Check.
struct Found {
    u64 wrong;
    u64 first;
};

// Lines whose elements share the upper half of their index; of equal ones the first counts.
template <int COMBINE, u64 LINES, u64 LANES, typename T>
INLINE void judge(const Check& work, const u64* at, u32 high, bool is_scaled, const Line<T>* got, Found& found) {
    const Pattern& of = work.pattern;
    u32 mixed[LINES][LANES];
    T want[LINES][LANES];
    ALL_AT_ONCE for (u64 line = 0; line < LINES; ++line)
        ALL_AT_ONCE for (u64 lane = 0; lane < LANES; ++lane) {
            mixed[line][lane] = mix(of, at[line] + lane, high);
            want[line][lane] = value<COMBINE, T>(of, 0, mixed[line][lane]);
        }
    ONE_BY_ONE for (u32 rank = 1; rank < of.ranks; ++rank)
        ALL_AT_ONCE for (u64 line = 0; line < LINES; ++line)
            ALL_AT_ONCE for (u64 lane = 0; lane < LANES; ++lane)
                want[line][lane] = combine<COMBINE>(want[line][lane], value<COMBINE, T>(of, rank, mixed[line][lane]));
    if (is_scaled) {
        ALL_AT_ONCE for (u64 line = 0; line < LINES; ++line)
            ALL_AT_ONCE for (u64 lane = 0; lane < LANES; ++lane)
                want[line][lane] = scale(want[line][lane], work.factor);
    }
    // A NaN is not equal to anything.
    bool is_right = true;
    ALL_AT_ONCE for (u64 line = 0; line < LINES; ++line)
        ALL_AT_ONCE for (u64 lane = 0; lane < LANES; ++lane)
            is_right &= widen(got[line].lanes[lane]) == widen(want[line][lane]);
    if (is_right) return;
    ALL_AT_ONCE for (u64 line = 0; line < LINES; ++line)
        ALL_AT_ONCE for (u64 lane = 0; lane < LANES; ++lane) {
            bool is_wrong = !(widen(got[line].lanes[lane]) == widen(want[line][lane]));
            if (is_wrong && (line == 0 || at[line] != at[0])) {
                ++found.wrong;
                if (at[line] + lane < found.first) found.first = at[line] + lane;
            }
        }
}

template <int COMBINE, typename T>
INLINE void check(const Check& work) {
    // Of wide elements four lines at a time.
    const u64 lanes = 16 / sizeof(T), at_once = sizeof(T) < 4 ? 1 : 4;
    const Pattern& of = work.pattern;
    const T* got = (const T*)work.got;
    const u32 high = upper(of, 0);
    const bool is_scaled = work.factor != 1;
    u64 before = head(got, of.elements);
    u64 lines = high == upper(of, of.elements - 1) ? (of.elements - before) / lanes : 0;
    const uint4* bytes = (const uint4*)(got + before);
    Found found = {0, ~0ull};
    ONE_BY_ONE for (u64 first = thread(); first < lines; first += at_once * threads()) {
        u64 at[at_once];
        Line<T> in[at_once];
        ALL_AT_ONCE for (u64 next = 0; next < at_once; ++next) {
            u64 line = first + next * threads() < lines ? first + next * threads() : first;
            at[next] = before + line * lanes;
            in[next].bytes = bytes[line];
        }
        judge<COMBINE, at_once, lanes>(work, at, high, is_scaled, in, found);
    }
    ONE_BY_ONE for (u64 left = thread(); left < of.elements - lines * lanes; left += threads()) {
        u64 at = left < before ? left : left + lines * lanes;
        Line<T> in;
        in.lanes[0] = got[at];
        judge<COMBINE, 1, 1>(work, &at, upper(of, at), is_scaled, &in, found);
    }
    if (found.wrong > 0) {
        count(work.wrong, found.wrong);
        lower(work.wrong + 1, found.first);
    }
}

template <typename T>
INLINE void check(const Check& work) {
    switch (work.pattern.combine) {
        case SUM: return check<SUM, T>(work);
        case MIN: return check<MIN, T>(work);
        case MAX: return check<MAX, T>(work);
        default: return check<PRODUCT, T>(work);
    }
}

#define PATTERN(name, T)                                     \
    KERNEL fill_##name(WORK(Fill) work) { fill<T>(work); }   \
    KERNEL AT_ONCE(3) check_##name(WORK(Check) work) { check<T>(work); }

PATTERN(f32, float)
PATTERN(f64, double)
PATTERN(f16, Half)
PATTERN(bf16, Brain)
PATTERN(i32, int)
PATTERN(i64, i64)
PATTERN(u8, u8)
