// The owner's side of lookups on request (lookups.hpp): answers a request of one replica.
#pragma once

#include "pooling.hpp"

#include <tenon/row_service.hpp>

#include <cstdint>
#include <string>

namespace tenon::recsys {

/// Request: i32 words, for each table the number of its bags, then the length of each bag, then their ids.
/// Answer: the pooled vector of each bag, [bags, width].
template <class Real>
class PooledAnswers final : public RowAnswerer {
 public:
  explicit PooledAnswers(std::int64_t width) : width_(width) {}
  void answer(std::span<const std::byte> request, std::span<const RowTable* const> tables,
              std::span<std::byte> answer) const override;

 private:
  std::int64_t width_;
};

}  // namespace tenon::recsys
