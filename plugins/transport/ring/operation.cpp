// The messages of every collective (operation.hpp). They are those of <tenon/sdk/traffic.hpp>, one by one.
#include "operation.hpp"

#include <tenon/sdk/fixed_order.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

TENON_ABI_BEGIN
namespace ring {

namespace {

std::byte* bytes_of(const TensorView& view) {
  return static_cast<std::byte*>(view.data);
}

struct ByteRange {
  std::int64_t begin, bytes;
};

ByteRange bytes_of_chunk(const Signature& what, int chunk, int chunks) {
  const ElementRange range = ring_chunk(what.shape.elements(), what.dtype, chunk, chunks);
  const std::int64_t begin = dtype_bytes(what.dtype, range.begin);
  return {begin, dtype_bytes(what.dtype, range.end) - begin};
}

ByteRange bytes_of_row(const Signature& what, int row, int rows) {
  const std::int64_t bytes = dtype_bytes(what.dtype, what.shape.elements()) / rows;
  return {row * bytes, bytes};
}

template <typename T>
void put(std::byte*& to, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    *to++ = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
}

template <typename T>
T take(const std::byte*& from) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= std::to_integer<std::uint64_t>(*from++) << (8 * i);
  return static_cast<T>(value);
}

class Planner {
 public:
  Planner(Operation& operation, const Buffers& buffers, int member, int members)
      : operation_(operation),
        what_(operation.signature),
        buffers_(buffers),
        memory_(bytes_of(buffers.data)),
        member_(member),
        members_(members) {}

  // `reduce`: chunk c passes round from member c + 1 to c and accumulates the sum. `gather`: from c to all.
  void ring(bool reduce, bool gather, ByteRange (*range)(const Signature&, int, int)) {
    const int next = (member_ + 1) % members_, previous = (member_ + members_ - 1) % members_;
    for (const bool reducing : {true, false}) {
      if (reducing ? !reduce : !gather) continue;
      for (int step = 0; step < members_ - 1; ++step) {
        const int chunk = (member_ + (reducing ? -1 : 0) - step + 2 * members_) % members_;
        const ByteRange out = range(what_, chunk, members_);
        const ByteRange in = range(what_, (chunk + members_ - 1) % members_, members_);
        operation_.sends.push_back({.peer = next,
                                    .index = static_cast<int>(operation_.sends.size()),
                                    .memory = memory_,
                                    .begin = out.begin,
                                    .bytes = out.bytes,
                                    .after = static_cast<int>(operation_.sends.size()) - 1});
        operation_.receives.push_back({.peer = previous,
                                       .memory = memory_,
                                       .begin = in.begin,
                                       .bytes = in.bytes,
                                       .own = reducing ? memory_ : nullptr});
      }
    }
  }

  // Passes from `first` upwards, in members - 1 pieces. Partial sums for the last member do not change the
  // tensors of the members between.
  void chain(int first, bool reduce) {
    const int position = (member_ - first + members_) % members_;
    const bool receives = position > 0, sends = position + 1 < members_;
    std::byte* landing = memory_;
    if (reduce && receives && sends) {
      operation_.workspace.resize(buffers_.data.bytes());
      landing = operation_.workspace.data();
    }
    for (int piece = 0; piece < members_ - 1; ++piece) {
      const ByteRange range = bytes_of_chunk(what_, piece, members_ - 1);
      if (receives) {
        operation_.receives.push_back({.peer = (member_ + members_ - 1) % members_,
                                       .memory = landing,
                                       .begin = range.begin,
                                       .bytes = range.bytes,
                                       .own = reduce ? memory_ : nullptr});
      }
      if (sends) {
        operation_.sends.push_back({.peer = (member_ + 1) % members_,
                                    .index = piece,
                                    .memory = landing,
                                    .begin = range.begin,
                                    .bytes = range.bytes,
                                    .after = receives ? piece : -1});
      }
    }
  }

  void all_to_all() {
    std::int64_t out = 0, in = 0;
    for (int other = 0; other < members_; ++other) {
      const std::size_t index = other;
      const std::int64_t sent = dtype_bytes(what_.dtype, buffers_.send_counts[index]);
      const std::int64_t received = dtype_bytes(what_.dtype, buffers_.receive_counts[index]);
      if (other == member_) {
        if (sent > 0 && sent == received) std::memcpy(bytes_of(buffers_.receive) + in, memory_ + out, sent);
      } else {
        if (sent > 0)
          operation_.sends.push_back({.peer = other,
                                      .index = member_ < other ? member_ : member_ - 1,
                                      .memory = memory_,
                                      .begin = out,
                                      .bytes = sent});
        operation_.receives.push_back(
            {.peer = other, .memory = bytes_of(buffers_.receive), .begin = in, .bytes = received});
        if (received == 0) {
          operation_.receives.back().whole = true;
          ++operation_.arrived;
        }
      }
      out += sent;
      in += received;
    }
  }

 private:
  Operation& operation_;
  const Signature& what_;
  const Buffers& buffers_;
  std::byte* const memory_;
  const int member_, members_;
};

}  // namespace

SignatureBytes write_signature(const Signature& what) {
  SignatureBytes bytes{};
  std::byte* to = bytes.data();
  put(to, static_cast<std::uint8_t>(what.kind));
  put(to, static_cast<std::uint8_t>(what.dtype));
  put(to, static_cast<std::uint8_t>(what.op));
  put(to, static_cast<std::uint8_t>(what.shape.rank()));
  put(to, static_cast<std::uint32_t>(what.root));
  for (int i = 0; i < what.shape.rank(); ++i) put(to, what.shape[i]);
  return bytes;
}

bool read_signature(std::span<const std::byte> bytes, Signature& what) {
  if (bytes.size() < kSignatureBytes) return false;
  const std::byte* from = bytes.data();
  const auto kind = take<std::uint8_t>(from), dtype = take<std::uint8_t>(from), op = take<std::uint8_t>(from),
             rank = take<std::uint8_t>(from);
  what.root = static_cast<int>(take<std::uint32_t>(from));
  if (kind > static_cast<std::uint8_t>(Kind::kMessage) || dtype > static_cast<std::uint8_t>(DType::kF6E3M2) ||
      op > static_cast<std::uint8_t>(ReduceOp::kMin) || rank > kMaxRank)
    return false;
  what.kind = static_cast<Kind>(kind);
  what.dtype = static_cast<DType>(dtype);
  what.op = static_cast<ReduceOp>(op);
  std::array<std::int64_t, kMaxRank> extents{};
  for (int i = 0; i < rank; ++i) extents[i] = take<std::int64_t>(from);
  std::int64_t elements = 1;
  for (int i = 0; i < rank; ++i) {
    const std::int64_t extent = extents[i];
    if (extent < 0 || (extent > 0 && elements > std::numeric_limits<std::int64_t>::max() / extent))
      return false;
    elements *= std::max<std::int64_t>(extent, 1);  // a shape counts the other extents of an empty tensor too
  }
  what.shape = Shape(std::span<const std::int64_t>(extents.data(), rank));
  return true;
}

void write_counts(std::span<const std::int64_t> counts, std::vector<std::byte>& bytes) {
  const std::size_t begin = bytes.size();
  bytes.resize(begin + counts.size() * sizeof(std::int64_t));
  std::byte* to = bytes.data() + begin;
  for (const std::int64_t count : counts) put(to, count);
}

void read_counts(std::span<const std::byte> bytes, std::vector<std::int64_t>& counts) {
  counts.resize(bytes.size() / sizeof(std::int64_t));
  const std::byte* from = bytes.data();
  for (std::int64_t& count : counts) count = take<std::int64_t>(from);
}

void Operation::reset(std::uint64_t operation_number, int members) {
  open = true;
  number = operation_number;
  started = finished = released = false;
  joins.resize(members);
  for (Join& join : joins) join.joined = false;
  joined = on_the_way = 0;
  sends.clear();
  receives.clear();
  queued = arrived = 0;
}

void Operation::plan(const Buffers& buffers, int member, int members) {
  Planner planner(*this, buffers, member, members);
  switch (signature.kind) {
    case Kind::kAllReduce:
      return planner.ring(true, true, bytes_of_chunk);
    case Kind::kReduceScatter:
      return planner.ring(true, false, bytes_of_row);
    case Kind::kAllGather:
      return planner.ring(false, true, bytes_of_row);
    case Kind::kBroadcast:
      return planner.chain(signature.root, false);
    case Kind::kReduce:
      return planner.chain((signature.root + 1) % members, true);
    case Kind::kAllToAll:
      return planner.all_to_all();
    case Kind::kBarrier:
      return planner.ring(true, true, bytes_of_chunk);  // without data
    case Kind::kMessage:
      break;
  }
}

}  // namespace ring
TENON_ABI_END
