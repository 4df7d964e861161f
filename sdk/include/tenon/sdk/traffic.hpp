// Closed forms of what one member sends in a collective, and of the collective's time on a link. Every
// transport's counts must equal them (docs/reductions.md). S is the tensor's bytes, K the number of members.
#pragma once

#include <tenon/transport.hpp>

#include <cstdint>
#include <span>
#include <string_view>

TENON_ABI_BEGIN

struct Traffic {
  std::uint64_t bytes = 0;
  std::uint64_t messages = 0;
};

/// Ring: 2 S - |chunk rank| - |chunk rank + 1|, which is 2 (K-1)/K S for equal chunks, in 2 (K-1) messages.
Traffic all_reduce_traffic(std::int64_t elements, DType dtype, int rank, int members) noexcept;
/// (K-1)/K S in K - 1 messages, for reduce-scatter and for all-gather of [K, n].
Traffic row_ring_traffic(std::int64_t total_bytes, int members) noexcept;
/// Chain from root upwards in K - 1 pieces: S from every member but the last.
Traffic broadcast_traffic(std::int64_t bytes, int rank, int root, int members) noexcept;
/// The same chain towards root: S from every member but root.
Traffic reduce_traffic(std::int64_t bytes, int rank, int root, int members) noexcept;
/// Elements for other members; an empty part is no message.
Traffic all_to_all_traffic(std::span<const std::int64_t> send_counts, DType dtype, int rank) noexcept;
/// 2 (K-1) empty messages.
Traffic barrier_traffic(int members) noexcept;

/// Time on a link: it is occupied while `transfer_s` runs; latencies of different operations overlap.
struct LinkTime {
  double transfer_s = 0;
  double latency_s = 0;
};

/// Seconds that `bytes` occupy the link; 0 on an unlimited one.
double link_seconds(const LinkSpec& link, double bytes) noexcept;
/// 2 (K-1)/K S/B + 2 (K-1) L.
LinkTime all_reduce_time(const LinkSpec& link, double bytes, int members) noexcept;
/// (K-1)/K S/B + (K-1) L.
LinkTime row_ring_time(const LinkSpec& link, double bytes, int members) noexcept;
/// (2K-3) (S/((K-1) B) + L): a chain of K - 1 hops for K - 1 pieces; broadcast and reduce.
LinkTime chain_time(const LinkSpec& link, double bytes, int members) noexcept;
/// max/B + (K-1) L, where max is the largest number of bytes that one member sends or receives.
LinkTime all_to_all_time(const LinkSpec& link, double largest_bytes, int members) noexcept;
/// 2 (K-1) L.
LinkTime barrier_time(const LinkSpec& link, int members) noexcept;

/// Identifies a group in the jitter stream; a function of its name and ranks alone.
std::uint64_t jitter_stream(std::string_view name, std::span<const int> ranks) noexcept;
/// Uniform in [0, jitter_s), a pure function of (seed, stream, operation).
double link_jitter(const LinkSpec& link, std::uint64_t seed, std::uint64_t stream,
                   std::uint64_t operation) noexcept;

TENON_ABI_END
