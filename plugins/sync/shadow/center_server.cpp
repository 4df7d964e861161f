// Serves requests of trainers (center_server.hpp). The lock is held only for arithmetic, never while waiting.
#include "center_server.hpp"

#include "merge.hpp"

#include <tenon/error.hpp>

#include <cstring>
#include <deque>
#include <string>

namespace tenon::sync_shadow {
namespace {

TensorView shard_view(std::byte* memory, DType dtype, std::int64_t elements) {
  TensorView view;
  view.data = memory;
  view.dtype = dtype;
  view.shape = Shape{elements};
  return view;
}

}  // namespace

void CenterServer::serve(ServerNode& node) {
  std::deque<Center> centers(static_cast<std::size_t>(node.parts()));
  std::deque<Pair> pairs;
  for (int trainer = 0; trainer < node.trainers(); ++trainer) {
    pairs.emplace_back([&](const char* name, Purpose purpose) { return node.open(trainer, name, purpose); });
  }
  const auto serve_trainer = [&](int trainer) { serve_one(pairs[trainer], centers[trainer % node.parts()]); };
  std::vector<std::unique_ptr<Actor>> actors;
  for (int trainer = 1; trainer < node.trainers(); ++trainer) {
    actors.push_back(node.host().spawn("center of trainer " + std::to_string(trainer),
                                       [&serve_trainer, trainer](Actor&) { serve_trainer(trainer); }));
  }
  serve_trainer(0);
  for (const auto& actor : actors) actor->stop();  // each ends with its trainer's kBye
}

void CenterServer::serve_one(Pair& pair, Center& center) {
  std::vector<std::byte> memory;
  while (true) {
    Header header;
    pair.requests->receive(view_of(header), kTrainer, kTag);
    if (header.request == Ask::kBye) return;
    if (header.request == Ask::kRoom) {
      memory.reserve(header.elements);
      pair.requests->send(view_of(header), kTrainer, kTag);
      continue;
    }
    answer(pair, center, header, memory);
  }
}

void CenterServer::answer(Pair& pair, Center& center, const Header& header, std::vector<std::byte>& memory) {
  const auto dtype = static_cast<DType>(header.dtype);
  const std::size_t bytes = dtype_bytes(dtype, header.elements);
  memory.resize(bytes);
  const TensorView data = shard_view(memory.data(), dtype, header.elements);
  const auto with_center = [&](auto&& body) {
    const std::lock_guard lock(center.mutex);
    const std::size_t index = header.arena;
    if (center.arenas.size() <= index) center.arenas.resize(index + 1);
    Arena& arena = center.arenas[index];
    if (header.request == Ask::kSet) {
      arena.dtype = dtype;
      arena.shard.resize(bytes);
    }
    const std::size_t whole = dtype_bytes(dtype, header.whole);
    const std::size_t begin = dtype_bytes(dtype, header.begin);
    if (arena.shard.size() != whole || arena.dtype != dtype || bytes > whole || begin > whole - bytes) {
      fail_run("shadow centre: a trainer asks for " + std::to_string(bytes) + " bytes from " +
               std::to_string(begin) + " on of arena " + std::to_string(index) + " with " +
               std::to_string(whole) + ", and this server holds " + std::to_string(arena.shard.size()) +
               "; trainers must have one model");
    }
    body(shard_view(arena.shard.data() + begin, dtype, header.elements));
  };
  const auto acknowledge = [&] {
    Header done = header;
    pair.requests->send(view_of(done), kTrainer, kTag);
  };
  switch (header.request) {
    case Ask::kSet:
      pair.state->receive(data, kTrainer, kTag);
      with_center([&](const TensorView& c) { std::memcpy(c.data, data.data, bytes); });
      return acknowledge();
    case Ask::kGet:
    case Ask::kFetch:
      with_center([&](const TensorView& c) { std::memcpy(data.data, c.data, bytes); });
      return (header.request == Ask::kGet ? pair.state : pair.weights)->send(data, kTrainer, kTag);
    case Ask::kSymmetric:
      pair.weights->receive(data, kTrainer, kTag);
      with_center([&](const TensorView& c) { attract(header.elastic, data, c, data); });
      return pair.weights->send(data, kTrainer, kTag);
    case Ask::kSequential:
      pair.weights->receive(data, kTrainer, kTag);
      with_center([&](const TensorView& c) {
        follow(header.elastic, data, c);
        std::memcpy(data.data, c.data, bytes);
      });
      return pair.weights->send(data, kTrainer, kTag);
    case Ask::kAdd:
      pair.weights->receive(data, kTrainer, kTag);
      with_center([&](const TensorView& c) { add(data, c); });
      return acknowledge();
    case Ask::kRoom:
    case Ask::kBye:
      return;
  }
}

}  // namespace tenon::sync_shadow
