// Units, closed forms and checks of one collective (operation.hpp).
#include "operation.hpp"

#include <tenon/sdk/fixed_order.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace tenon::thread_transport {

namespace {

constexpr std::int64_t kUnitBytes = 256 * 1024;

std::size_t index_of(int member) {
  return member;
}

std::byte* bytes_of(const TensorView& view) {
  return static_cast<std::byte*>(view.data);
}

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t count) {
  if (count > 0) std::memcpy(to, from, count);
}

std::int64_t blocks_of(std::int64_t bytes) {
  return bytes / kUnitBytes + (bytes % kUnitBytes != 0);
}

// Returns the subrange of [0, total) that unit `block` covers, in items that `per_block` counts.
ElementRange block_range(std::int64_t block, std::int64_t total, std::int64_t per_block) {
  return {block * per_block, std::min(total, (block + 1) * per_block)};
}

// Reduces bytes [begin, begin + elements) of every member's data, summed for `owner`, into `out`.
void reduce_block(Operation& operation, std::int64_t begin, std::int64_t elements, int owner, int runner,
                  void* out) {
  const Signature& what = operation.signature;
  const int members = static_cast<int>(operation.parts.size());
  auto& inputs = operation.parts[index_of(runner)].inputs;
  for (int position = 0; position < members; ++position) {
    const int source = ring_source(owner, position, members);
    inputs[index_of(position)] = bytes_of(operation.parts[index_of(source)].data) + begin;
  }
  reduce_in_order(inputs, out, elements, what.dtype, what.op);
}

void all_reduce_unit(Operation& operation, std::int64_t unit, int runner) {
  const Signature& what = operation.signature;
  const int members = static_cast<int>(operation.parts.size());
  const std::int64_t width = dtype_bits(what.dtype) / 8;
  const std::int64_t elements = what.shape.elements();
  const ElementRange range = block_range(unit, elements, kUnitBytes / width);
  for (int chunk = 0; chunk < members; ++chunk) {
    const ElementRange owned = ring_chunk(elements, what.dtype, chunk, members);
    const std::int64_t begin = std::max(range.begin, owned.begin);
    const std::int64_t end = std::min(range.end, owned.end);
    if (begin >= end) continue;
    std::byte* out = bytes_of(operation.parts[index_of(runner)].data) + begin * width;
    reduce_block(operation, begin * width, end - begin, chunk, runner, out);
    for (int member = 0; member < members; ++member) {
      if (member == runner) continue;
      copy_bytes(bytes_of(operation.parts[index_of(member)].data) + begin * width, out,
                 (end - begin) * width);
    }
  }
}

// Rows of [members, n]: unit = (row, block within it), in bytes from the start of the tensor.
struct RowBlock {
  int row = 0;
  std::int64_t begin = 0;
  std::int64_t bytes = 0;
};

RowBlock row_block(const Operation& operation, std::int64_t unit) {
  const std::int64_t row_bytes =
      operation.parts[0].data.bytes() / static_cast<std::int64_t>(operation.parts.size());
  const std::int64_t blocks = blocks_of(row_bytes);
  const ElementRange range = block_range(unit % blocks, row_bytes, kUnitBytes);
  return {static_cast<int>(unit / blocks), unit / blocks * row_bytes + range.begin, range.size()};
}

void all_to_all_unit(Operation& operation, std::int64_t unit) {
  const auto members = static_cast<std::int64_t>(operation.parts.size());
  const std::size_t from = unit / members;
  const std::size_t to = unit % members;
  const Part& sender = operation.parts[from];
  const Part& receiver = operation.parts[to];
  const DType dtype = operation.signature.dtype;
  std::int64_t send_offset = 0, receive_offset = 0;
  for (std::size_t i = 0; i < to; ++i) send_offset += dtype_bytes(dtype, sender.send_counts[i]);
  for (std::size_t i = 0; i < from; ++i) receive_offset += dtype_bytes(dtype, receiver.receive_counts[i]);
  copy_bytes(bytes_of(receiver.receive) + receive_offset, bytes_of(sender.data) + send_offset,
             dtype_bytes(dtype, sender.send_counts[to]));
}

}  // namespace

void Operation::reset(std::uint64_t operation_number, const Signature& agreed, int members) {
  open = true;
  number = operation_number;
  signature = agreed;
  parts.resize(index_of(members));
  for (Part& part : parts) {
    part.joined = part.waiting = part.finished = false;
    part.inputs.resize(parts.size());
  }
  joined = finished = running = 0;
  sealed = false;
  units = next_unit = units_done = 0;
  joined_at = link_s = end = 0;
}

std::int64_t unit_count(const Operation& operation) {
  const auto members = static_cast<std::int64_t>(operation.parts.size());
  const Signature& what = operation.signature;
  if (members == 1) return what.kind == Kind::kAllToAll ? 1 : 0;
  switch (what.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce:
    case Kind::kBroadcast:
      return blocks_of(dtype_bytes(what.dtype, what.shape.elements()));
    case Kind::kReduceScatter:
    case Kind::kAllGather:
      return members * blocks_of(operation.parts[0].data.bytes() / members);
    case Kind::kAllToAll:
      return members * members;
    default:
      break;
  }
  return 0;
}

void run_unit(Operation& operation, std::int64_t unit, int runner) {
  const Signature& what = operation.signature;
  std::vector<Part>& parts = operation.parts;
  switch (what.kind) {
    case Kind::kAllReduce:
      all_reduce_unit(operation, unit, runner);
      return;
    case Kind::kReduceScatter: {
      const RowBlock block = row_block(operation, unit);
      reduce_block(operation, block.begin, block.bytes * 8 / dtype_bits(what.dtype), block.row, runner,
                   bytes_of(parts[index_of(block.row)].data) + block.begin);
      return;
    }
    case Kind::kAllGather: {
      const RowBlock block = row_block(operation, unit);
      const std::byte* row = bytes_of(parts[index_of(block.row)].data) + block.begin;
      for (std::size_t member = 0; member < parts.size(); ++member) {
        if (static_cast<int>(member) != block.row)
          copy_bytes(bytes_of(parts[member].data) + block.begin, row, block.bytes);
      }
      return;
    }
    case Kind::kBroadcast: {
      const ElementRange range = block_range(unit, parts[0].data.bytes(), kUnitBytes);
      const std::byte* source = bytes_of(parts[index_of(what.root)].data) + range.begin;
      for (std::size_t member = 0; member < parts.size(); ++member) {
        if (static_cast<int>(member) != what.root)
          copy_bytes(bytes_of(parts[member].data) + range.begin, source, range.size());
      }
      return;
    }
    case Kind::kReduce: {
      const std::int64_t width = dtype_bits(what.dtype) / 8;
      const ElementRange range = block_range(unit, what.shape.elements(), kUnitBytes / width);
      reduce_block(operation, range.begin * width, range.size(), what.root, runner,
                   bytes_of(parts[index_of(what.root)].data) + range.begin * width);
      return;
    }
    case Kind::kAllToAll:
      all_to_all_unit(operation, unit);
      return;
    default:
      return;
  }
}

std::string count_mismatch(const Operation& operation, std::span<const int> ranks) {
  if (operation.signature.kind != Kind::kAllToAll) return "";
  for (std::size_t from = 0; from < operation.parts.size(); ++from) {
    for (std::size_t to = 0; to < operation.parts.size(); ++to) {
      const std::int64_t sent = operation.parts[from].send_counts[to];
      const std::int64_t expected = operation.parts[to].receive_counts[from];
      if (sent == expected) continue;
      return fmt::format("rank {} sends {} elements to rank {}, which expects {}", ranks[from], sent,
                         ranks[to], expected);
    }
  }
  return "";
}

Traffic traffic_of(const Signature& what, const Part& part, int member, int members) {
  const std::int64_t bytes = dtype_bytes(what.dtype, what.shape.elements());
  switch (what.kind) {
    case Kind::kAllReduce:
      return all_reduce_traffic(what.shape.elements(), what.dtype, member, members);
    case Kind::kReduceScatter:
    case Kind::kAllGather:
      return row_ring_traffic(bytes, members);
    case Kind::kBroadcast:
      return broadcast_traffic(bytes, member, what.root, members);
    case Kind::kReduce:
      return reduce_traffic(bytes, member, what.root, members);
    case Kind::kAllToAll:
      return all_to_all_traffic(part.send_counts, what.dtype, member);
    default:
      break;
  }
  return barrier_traffic(members);
}

LinkTime time_of(const Operation& operation, const LinkSpec& link) {
  const Signature& what = operation.signature;
  const int members = static_cast<int>(operation.parts.size());
  const auto bytes = static_cast<double>(dtype_bytes(what.dtype, what.shape.elements()));
  switch (what.kind) {
    case Kind::kAllReduce:
      return all_reduce_time(link, bytes, members);
    case Kind::kReduceScatter:
    case Kind::kAllGather:
      return row_ring_time(link, bytes, members);
    case Kind::kBroadcast:
    case Kind::kReduce:
      return chain_time(link, bytes, members);
    case Kind::kAllToAll: {
      std::uint64_t largest = 0;
      for (int member = 0; member < members; ++member) {
        const Part& part = operation.parts[index_of(member)];
        largest = std::max({largest, all_to_all_traffic(part.send_counts, what.dtype, member).bytes,
                            all_to_all_traffic(part.receive_counts, what.dtype, member).bytes});
      }
      return all_to_all_time(link, static_cast<double>(largest), members);
    }
    default:
      break;
  }
  return barrier_time(link, members);
}

}  // namespace tenon::thread_transport
