// All owners are asked before any answer is awaited, and gradients leave while the worker goes on: they are
// awaited before the next ones (row_client.hpp).
#include "loop/row_client.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tenon::train {
namespace {

std::size_t index(int replica) {
  return replica;
}

/// The owner's part of a table's gradient: [first, last) of its rows.
std::pair<std::size_t, std::size_t> part_of(const RowServer::Table& table, const RowGradient& rows,
                                            int owner) {
  const auto begin = rows.ids.begin(), end = rows.ids.end();
  const auto first = std::lower_bound(begin, end, table.offsets[index(owner)]);
  const auto last = std::lower_bound(first, end, table.offsets[index(owner) + 1]);
  return {static_cast<std::size_t>(first - begin), static_cast<std::size_t>(last - begin)};
}

const RowGradient* find(std::span<const RowGradient> rows, int parameter) {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const RowGradient& some) { return some.parameter == parameter; });
  return found == rows.end() || found->ids.empty() ? nullptr : &*found;
}

}  // namespace

template <typename Fn>
void RowClient::each_owner(Fn&& fn) {
  const auto replicas = static_cast<int>(owners_.size());
  for (int i = 1; i < replicas; ++i) {
    const int owner = (server_.spec().replica + i) % replicas;
    fn(owner, owners_[index(owner)]);
  }
}

void RowClient::open(const CommunicatorWatch& watch) {
  const RowServerSpec& spec = server_.spec();
  owners_.resize(spec.peers.size());
  each_owner([&](int owner, Owner& state) {
    const std::vector<int> members = {spec.host.rank, spec.peers[index(owner)]};
    const auto open_end = [&](const char* what, Purpose purpose) {
      const std::string name = row_pair_name(what, members[0], worker_, members[1]);
      return traced(spec.transport->open(spec.host.rank, {members, name, purpose, spec.epoch, 0}), watch,
                    members, fmt::format("rows.{}", what));
    };
    state.pair = {open_end("lookups", Purpose::kModel), open_end("gradients", Purpose::kGradient)};
  });
}

void RowClient::ask(int node, std::span<const RowAsk> asks) {
  if (asks.size() != owners_.size())
    fail_plugin(fmt::format("a node asks {} replicas for rows; there are {}", asks.size(), owners_.size()));
  each_owner([&](int owner, Owner& state) {
    const RowAsk& ask = asks[index(owner)];
    if (ask.request.empty()) return;
    state.lookup.message = RowMessage::kLookup;
    state.lookup.node = node;
    state.lookup.bytes = static_cast<std::int64_t>(ask.request.size());
    state.lookup.answer_bytes = static_cast<std::int64_t>(ask.answer.size());
    state.lookup.place = place_;
    Communicator& pair = *state.pair.lookups;
    state.asked[0] = pair.start_send(header_view(state.lookup), kOwner, kRowTag);
    state.asked[1] = pair.start_send(bytes_view(ask.request.data(), ask.request.size()), kOwner, kRowTag);
    state.asked[2] = pair.start_receive(bytes_view(ask.answer.data(), ask.answer.size()), kOwner, kRowTag);
  });
  const RowAsk& own = asks[index(server_.spec().replica)];
  if (!own.request.empty()) server_.answer(node, own.request, own.answer);
  each_owner([&](int owner, Owner& state) {
    if (asks[index(owner)].request.empty()) return;
    for (const Request request : state.asked) state.pair.lookups->wait(request);
  });
}

void RowClient::pack(const UpdateContext& context, std::span<const RowGradient> rows, int owner, Owner& to) {
  const std::span<const RowServer::Table> tables = server_.tables();
  std::vector<std::byte>& out = to.gradients;
  out.clear();
  const auto append = [&](const void* data, std::size_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    out.insert(out.end(), from, from + bytes);
  };
  std::size_t all = 0;
  for (const RowServer::Table& table : tables) {
    std::int64_t count = 0;
    if (const RowGradient* some = find(rows, table.parameter)) {
      const auto part = part_of(table, *some, owner);
      count = static_cast<std::int64_t>(part.second - part.first);
    }
    append(&count, sizeof count);
    all += count;
  }
  if (all == 0) return out.clear();
  const auto each_part = [&](auto&& body) {
    for (const RowServer::Table& table : tables) {
      const RowGradient* some = find(rows, table.parameter);
      if (some == nullptr) continue;
      const auto part = part_of(table, *some, owner);
      body(table, *some, part.first, part.second - part.first);
    }
  };
  each_part([&](const RowServer::Table&, const RowGradient& some, std::size_t at, std::size_t count) {
    append(some.ids.data() + at, count * sizeof(std::int64_t));
  });
  each_part([&](const RowServer::Table& table, const RowGradient& some, std::size_t at, std::size_t count) {
    append(static_cast<const std::byte*>(some.values.data) + at * table.row_bytes(),
           count * table.row_bytes());
  });
  each_part([&](const RowServer::Table&, const RowGradient& some, std::size_t at, std::size_t count) {
    append(some.counts.data() + at, count * sizeof(std::uint32_t));
  });
  if (out.capacity() < out.size() + out.size() / 2) out.reserve(2 * out.size());
  to.update.message = RowMessage::kUpdate;
  to.update.bytes = static_cast<std::int64_t>(out.size());
  to.update.update = {context.lr, context.gradient_scale, context.count};
}

void RowClient::finish_sending(Owner& owner) {
  if (!std::exchange(owner.sending, false)) return;
  owner.pair.lookups->wait(owner.sent[0]);
  owner.pair.gradients->wait(owner.sent[1]);
}

void RowClient::update(const UpdateContext& context, std::span<const RowGradient> rows) {
  each_owner([&](int owner, Owner& state) {
    finish_sending(state);
    pack(context, rows, owner, state);
    if (state.gradients.empty()) return;
    state.sent[0] = state.pair.lookups->start_send(header_view(state.update), kOwner, kRowTag);
    state.sent[1] = state.pair.gradients->start_send(
        bytes_view(state.gradients.data(), state.gradients.size()), kOwner, kRowTag);
    state.sending = true;
  });
  const std::span<const RowServer::Table> tables = server_.tables();
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const RowGradient* some = find(rows, tables[t].parameter);
    if (some == nullptr) continue;
    const auto part = part_of(tables[t], *some, server_.spec().replica);
    const std::size_t count = part.second - part.first;
    if (count == 0) continue;
    TensorView values = some->values;
    values.data = static_cast<std::byte*>(values.data) + part.first * tables[t].row_bytes();
    values.shape = Shape{static_cast<std::int64_t>(count), tables[t].width};
    server_.update(context, t,
                   {tables[t].parameter, some->ids.subspan(part.first, count), values,
                    some->counts.subspan(part.first, count)});
  }
}

void RowClient::flush() {
  each_owner([&](int, Owner& state) {
    finish_sending(state);
    state.flush.message = RowMessage::kFlush;
    state.asked[0] = state.pair.lookups->start_send(header_view(state.flush), kOwner, kRowTag);
  });
  each_owner([&](int, Owner& state) {
    state.pair.lookups->wait(state.asked[0]);
    state.pair.lookups->receive(header_view(state.flush), kOwner, kRowTag);
  });
}

void RowClient::bye() {
  each_owner([&](int, Owner& state) {
    finish_sending(state);
    state.flush.message = RowMessage::kBye;
    state.pair.lookups->send(header_view(state.flush), kOwner, kRowTag);
  });
}

}  // namespace tenon::train
