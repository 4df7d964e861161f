// Elements by ranks, slots and other numbers that are signed.
#pragma once

#include <cassert>
#include <concepts>
#include <cstddef>
#include <iterator>
#include <utility>

namespace tenon::base {

/// list[index]; 0 <= index < size.
template <typename List, std::integral Index>
constexpr decltype(auto) at(List&& list, Index index) {
  assert(std::cmp_greater_equal(index, 0) && std::cmp_less(index, std::size(list)));
  return list[index];
}

}  // namespace tenon::base
