// For authors of transports: checks of an operation's arguments that one member alone can make, so that a
// wrong call is refused before other members wait for it. All transports use the same messages.
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
  /// Requires host memory, and data unless the view is empty.
  void check_view(std::string_view call, const TensorView& view) const;
  void check_member(std::string_view call, int member) const;
  /// Requires [size, n] with rows of whole bytes.
  void check_rows(std::string_view call, const TensorView& view) const;
  /// Requires counts that fit both views, equal dtypes, and no overlap.
  void check_all_to_all(const TensorView& send, std::span<const std::int64_t> send_counts,
                        const TensorView& receive, std::span<const std::int64_t> receive_counts) const;

 private:
  void check_counts(const TensorView& view, std::span<const std::int64_t> counts) const;

  const std::string group_;
  const int rank_, size_;
};

TENON_ABI_END
