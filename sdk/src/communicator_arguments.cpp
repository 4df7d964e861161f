// Checks of communicator_arguments.hpp.
#include <tenon/sdk/communicator_arguments.hpp>

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <functional>

TENON_ABI_BEGIN

CommunicatorArguments::CommunicatorArguments(std::string_view group, int world_rank, int size)
    : group_(group), rank_(world_rank), size_(size) {}

void CommunicatorArguments::refuse(std::string_view call, const std::string& what) const {
  fail_run(fmt::format("{} on '{}' by rank {}: {}", call, group_, rank_, what));
}

void CommunicatorArguments::check_view(std::string_view call, const TensorView& view) const {
  if (view.space != MemorySpace::kHost)
    refuse(call, "the tensor is not in host memory, all that this transport reaches");
  if (view.data == nullptr && view.elements() != 0)
    refuse(call, fmt::format("no data for {}", view.shape.text()));
}

void CommunicatorArguments::check_member(std::string_view call, int member) const {
  if (member >= 0 && member < size_) return;
  refuse(call, fmt::format("member {} does not exist; the group has members 0 ... {}", member, size_ - 1));
}

void CommunicatorArguments::check_rows(std::string_view call, const TensorView& view) const {
  check_view(call, view);
  if (view.shape.rank() < 1 || view.shape[0] != size_) {
    refuse(call, fmt::format("the tensor is {}, expected one row for each of the {} members",
                             view.shape.text(), size_));
  }
  if (view.elements() / size_ * dtype_bits(view.dtype) % 8 != 0)
    refuse(call, fmt::format("a row of {} {} ends inside a byte", dtype_name(view.dtype), view.shape.text()));
}

void CommunicatorArguments::check_all_to_all(const TensorView& send,
                                             std::span<const std::int64_t> send_counts,
                                             const TensorView& receive,
                                             std::span<const std::int64_t> receive_counts) const {
  check_counts(send, send_counts);
  check_counts(receive, receive_counts);
  if (send.dtype != receive.dtype) {
    refuse("all_to_all", fmt::format("sends {} and receives {}; the types must be equal",
                                     dtype_name(send.dtype), dtype_name(receive.dtype)));
  }
  const std::less<const std::byte*> before;
  const auto* sent = static_cast<const std::byte*>(send.data);
  const auto* received = static_cast<const std::byte*>(receive.data);
  if (!send.empty() && !receive.empty() && before(sent, received + receive.bytes()) &&
      before(received, sent + send.bytes())) {
    refuse("all_to_all", "the send and receive buffers overlap");
  }
}

void CommunicatorArguments::check_counts(const TensorView& view, std::span<const std::int64_t> counts) const {
  constexpr std::string_view kCall = "all_to_all";
  check_view(kCall, view);
  if (counts.size() != static_cast<std::size_t>(size_))
    refuse(kCall, fmt::format("{} counts, expected one for each of the {} members", counts.size(), size_));
  std::int64_t total = 0;
  for (const std::int64_t count : counts) {
    if (count < 0 || count > view.elements() - total)
      refuse(kCall,
             fmt::format("a count of {} does not fit a tensor of {} elements", count, view.elements()));
    if (count * dtype_bits(view.dtype) % 8 != 0)
      refuse(kCall, fmt::format("{} elements of {} end inside a byte", count, dtype_name(view.dtype)));
    total += count;
  }
  if (total != view.elements()) {
    refuse(kCall,
           fmt::format("the counts add up to {}, but the tensor has {} elements", total, view.elements()));
  }
}

TENON_ABI_END
