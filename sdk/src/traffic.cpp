// Closed forms of traffic.hpp.
#include <tenon/sdk/traffic.hpp>

#include <tenon/sdk/fixed_order.hpp>

#include <tenon/random.hpp>

#include <algorithm>

TENON_ABI_BEGIN

namespace {

std::uint64_t unsigned_of(std::int64_t x) noexcept {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, x));
}

}  // namespace

Traffic all_reduce_traffic(std::int64_t elements, DType dtype, int rank, int members) noexcept {
  if (members <= 1) return {};
  const auto chunk_bytes = [&](int chunk) {
    return dtype_bytes(dtype, ring_chunk(elements, dtype, chunk % members, members).size());
  };
  // Reducing, a member sends every chunk but its own; gathering, every chunk but the one its successor owns.
  const std::int64_t bytes = 2 * dtype_bytes(dtype, elements) - chunk_bytes(rank) - chunk_bytes(rank + 1);
  return {unsigned_of(bytes), 2 * unsigned_of(members - 1)};
}

Traffic row_ring_traffic(std::int64_t total_bytes, int members) noexcept {
  if (members <= 1) return {};
  return {unsigned_of(total_bytes / members * (members - 1)), unsigned_of(members - 1)};
}

Traffic broadcast_traffic(std::int64_t bytes, int rank, int root, int members) noexcept {
  if (members <= 1 || (rank + 1) % members == root) return {};
  return {unsigned_of(bytes), unsigned_of(members - 1)};
}

Traffic reduce_traffic(std::int64_t bytes, int rank, int root, int members) noexcept {
  if (members <= 1 || rank == root) return {};
  return {unsigned_of(bytes), unsigned_of(members - 1)};
}

Traffic all_to_all_traffic(std::span<const std::int64_t> send_counts, DType dtype, int rank) noexcept {
  Traffic traffic;
  for (std::size_t to = 0; to < send_counts.size(); ++to) {
    if (static_cast<int>(to) == rank || send_counts[to] <= 0) continue;
    traffic.bytes += unsigned_of(dtype_bytes(dtype, send_counts[to]));
    ++traffic.messages;
  }
  return traffic;
}

Traffic barrier_traffic(int members) noexcept {
  return {0, 2 * unsigned_of(members - 1)};
}

double link_seconds(const LinkSpec& link, double bytes) noexcept {
  return link.bandwidth_bits_per_s > 0 ? bytes * 8 / link.bandwidth_bits_per_s : 0;
}

LinkTime all_reduce_time(const LinkSpec& link, double bytes, int members) noexcept {
  const double hops = 2.0 * (members - 1);
  return {link_seconds(link, hops * bytes / members), hops * link.latency_s};
}

LinkTime row_ring_time(const LinkSpec& link, double bytes, int members) noexcept {
  const double hops = members - 1;
  return {link_seconds(link, hops * bytes / members), hops * link.latency_s};
}

LinkTime chain_time(const LinkSpec& link, double bytes, int members) noexcept {
  if (members <= 1) return {};
  const double steps = 2.0 * members - 3;
  return {link_seconds(link, steps * bytes / (members - 1)), steps * link.latency_s};
}

LinkTime all_to_all_time(const LinkSpec& link, double largest_bytes, int members) noexcept {
  return {link_seconds(link, largest_bytes), (members - 1) * link.latency_s};
}

LinkTime barrier_time(const LinkSpec& link, int members) noexcept {
  return {0, 2.0 * (members - 1) * link.latency_s};
}

std::uint64_t jitter_stream(std::string_view name, std::span<const int> ranks) noexcept {
  RandomKey key = random_key(ranks.size(), name);
  for (const int rank : ranks) {
    const auto words = random_words(key, ranks.size(), static_cast<std::uint64_t>(rank));
    key = {{words[0], words[1]}};
  }
  return (std::uint64_t{key.words[1]} << 32) | key.words[0];
}

double link_jitter(const LinkSpec& link, std::uint64_t seed, std::uint64_t stream,
                   std::uint64_t operation) noexcept {
  if (!(link.jitter_s > 0)) return 0;
  return link.jitter_s * random_uniform(random_key(seed, "jitter"), operation, stream);
}

TENON_ABI_END
