// Copies of rows by relaxed loads and stores, which lock-free workers need and which cost no more than memcpy
// for rows of usual width: for memory of rows (<tenon/tier.hpp>) that several threads write at once.
#pragma once

#include <tenon/abi.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

TENON_ABI_BEGIN

/// Calls fn with a value of the widest word that divides a row. Rows are aligned to it.
template <typename Fn>
void with_row_word(std::size_t row_bytes, Fn&& fn) {
  if (row_bytes % 8 == 0) {
    std::forward<Fn>(fn)(std::uint64_t{});
  } else if (row_bytes % 4 == 0) {
    std::forward<Fn>(fn)(std::uint32_t{});
  } else if (row_bytes % 2 == 0) {
    std::forward<Fn>(fn)(std::uint16_t{});
  } else {
    std::forward<Fn>(fn)(std::uint8_t{});
  }
}

template <typename Word>
void load_row_words(const std::byte* row, std::byte* out, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += sizeof(Word)) {
    const Word word = __atomic_load_n(reinterpret_cast<const Word*>(row + at), __ATOMIC_RELAXED);
    std::memcpy(out + at, &word, sizeof word);
  }
}

template <typename Word>
void store_row_words(std::byte* row, const std::byte* in, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, in + at, sizeof word);
    __atomic_store_n(reinterpret_cast<Word*>(row + at), word, __ATOMIC_RELAXED);
  }
}

TENON_ABI_END
