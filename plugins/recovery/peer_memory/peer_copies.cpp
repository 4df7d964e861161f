#include "peer_copies.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <algorithm>
#include <span>
#include <sstream>
#include <utility>

namespace tenon::recovery_peer_memory {
namespace {

std::uint32_t crc_of(const std::string& bytes) {
  return crc32c(std::as_bytes(std::span(bytes)));
}

TensorView text_view(std::string& text) {
  return {text.data(), Shape{static_cast<std::int64_t>(text.size())}, DType::kU8};
}

/// What a receiver must know of a copy before its bytes come.
struct Announced {
  std::int64_t size = 0, crc = 0;
};

TensorView announced_view(Announced* announced, std::int64_t count) {
  return {announced, Shape{count, 2}, DType::kI64};
}

}  // namespace

bool StateCopy::intact() const {
  return crc_of(bytes) == crc;
}

KeptCopies& PeerCopies::kept() {
  std::shared_ptr<void>& memory = host_.kept(kMemory);
  if (memory == nullptr) memory = std::make_shared<KeptCopies>();
  return *static_cast<KeptCopies*>(memory.get());
}

Communicator& PeerCopies::group() {
  if (group_ == nullptr) group_ = host_.open("copies");
  return *group_;
}

bool PeerCopies::holds(int holder, int of) const {
  const std::vector<int>& holders = holders_[of];
  return std::find(holders.begin(), holders.end(), holder) != holders.end();
}

void PeerCopies::exchange(std::int64_t slot) {
  CopySet made;
  made.slot = slot;
  StateCopy& mine = made.of[rank_];
  mine.bytes = host_.capture();
  mine.crc = crc_of(mine.bytes);

  Communicator& group = this->group();
  std::vector<Announced> all(holders_.size());
  all[rank_] = {static_cast<std::int64_t>(mine.bytes.size()), mine.crc};
  group.all_gather(announced_view(all.data(), static_cast<std::int64_t>(all.size())));
  std::vector<Request> requests;
  for (int rank = 0; rank < static_cast<int>(holders_.size()); ++rank) {
    if (rank == rank_ || !holds(rank_, rank)) continue;
    StateCopy& copy = made.of[rank];
    copy.bytes.resize(all[rank].size);
    copy.crc = static_cast<std::uint32_t>(all[rank].crc);
    requests.push_back(group.start_receive(text_view(copy.bytes), rank, 0));
  }
  for (const int holder : holders_[rank_]) {
    if (holder != rank_) requests.push_back(group.start_send(text_view(mine.bytes), holder, 0));
  }
  for (const Request request : requests) group.wait(request);
  // Until all ranks have all copies, the previous copies are the common roll-back point.
  group.barrier();
  KeptCopies& memory = kept();
  memory.older = std::exchange(memory.newest, std::move(made));
}

std::string PeerCopies::text() {
  std::string text;
  damaged_ = 0;
  const KeptCopies& memory = kept();
  for (const CopySet* set : {&memory.newest, &memory.older}) {
    if (set->slot < 0) continue;
    text += std::to_string(set->slot);
    for (const auto& [rank, copy] : set->of) {
      if (copy.intact()) {
        text += " " + std::to_string(rank);
      } else {
        ++damaged_;
      }
    }
    text += "\n";
  }
  return text;
}

std::int64_t PeerCopies::find() {
  std::map<std::int64_t, std::map<int, int>> givers;  // slot, owner of the copy, lowest rank that has it
  const std::vector<std::string> said = host_.gather(text());
  for (std::size_t r = 0; r < said.size(); ++r) {
    std::istringstream lines(said[r]);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::int64_t slot = 0;
      words >> slot;
      for (int of = 0; words >> of;) {
        int& giver = givers[slot].try_emplace(of, static_cast<int>(r)).first->second;
        if (of == static_cast<int>(r)) giver = of;  // its own copy, which needs no transfer
      }
    }
  }
  for (auto set = givers.rbegin(); set != givers.rend(); ++set) {
    if (set->second.size() != holders_.size()) continue;
    givers_ = set->second;
    return set->first;
  }
  return -1;
}

void PeerCopies::bring_back(std::int64_t slot) {
  const KeptCopies& memory = kept();
  const CopySet& set = memory.newest.slot == slot ? memory.newest : memory.older;
  Communicator& group = this->group();
  StateCopy mine;
  for (const auto& [rank, giver] : givers_) {
    Announced announced;
    if (giver == rank_) {
      const StateCopy& copy = set.of.at(rank);
      announced = {static_cast<std::int64_t>(copy.bytes.size()), copy.crc};
    }
    group.broadcast(announced_view(&announced, 1), giver);
    if (giver == rank) {
      if (rank == rank_) mine = set.of.at(rank);
    } else if (rank == rank_) {
      mine.bytes.resize(announced.size);
      mine.crc = static_cast<std::uint32_t>(announced.crc);
      group.receive(text_view(mine.bytes), giver, 0);
    } else if (giver == rank_) {
      std::string copy = set.of.at(rank).bytes;
      group.send(text_view(copy), rank, 0);
    }
  }
  if (!mine.intact()) {
    fail_run("recovery peer_memory: the state of rank " + std::to_string(rank_) + " at slot " +
             std::to_string(slot) + " came from rank " + std::to_string(givers_[rank_]) +
             " with other bytes than were kept; start the run again with --resume, from a checkpoint");
  }
  host_.restore(mine.bytes);
}

}  // namespace tenon::recovery_peer_memory
