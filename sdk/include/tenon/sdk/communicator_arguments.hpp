// For authors of transports: what one member alone can check about the arguments of an operation, so that a
// wrong one is refused before anybody else is left waiting for it. All transports refuse in the same words.
#pragma once

#include <tenon/transport.hpp>

#include <span>
#include <string>
#include <string_view>

TENON_ABI_BEGIN

/// One member of an open group. Every check throws Error(kRun) that begins "all_reduce on 'NAME' by rank R:
/// ".
class CommunicatorArguments {
 public:
  CommunicatorArguments(std::string_view group, int world_rank, int size);

  [[noreturn]] void refuse(std::string_view call, const std::string& what) const;
  /// In host memory, with data unless it is empty.
  void check_view(std::string_view call, const TensorView& view) const;
  void check_member(std::string_view call, int member) const;
  /// [size, n] whose rows end at bytes.
  void check_rows(std::string_view call, const TensorView& view) const;
  /// Both views with their counts, of one dtype, apart from each other.
  void check_all_to_all(const TensorView& send, std::span<const std::int64_t> send_counts,
                        const TensorView& receive, std::span<const std::int64_t> receive_counts) const;

 private:
  void check_counts(const TensorView& view, std::span<const std::int64_t> counts) const;

  const std::string group_;
  const int rank_, size_;
};

TENON_ABI_END
