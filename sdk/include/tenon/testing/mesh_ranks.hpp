// For tests on a mesh: its ranks as threads over the thread transport, which the registry finds through
// the environment (TENON_PLUGIN_PATH).
#pragma once

#include <tenon/clock.hpp>
#include <tenon/error.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/transport.hpp>

#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace tenon::testing {

/// One rank of a mesh: its communicators, and its view.
class MeshEnds {
 public:
  /// Wraps every communicator that a rank opens; for delays and faults.
  using Wrap = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator> inner, int rank)>;

  /// `members`: world ranks by mesh index, this rank's at `place`. `name`: distinguishes meshes that are open
  /// together.
  MeshEnds(Transport& transport, const std::vector<int>& extents, const std::vector<int>& members, int place,
           const std::string& name = "", const Wrap& wrap = {}) {
    const auto open = [&](const std::vector<int>& places, const std::string& what) -> Communicator* {
      std::vector<int> ranks;
      for (const int member : places) ranks.push_back(members[member]);
      const int self = members[place];
      auto end = transport.open(self, {.ranks = ranks, .name = name + what, .purpose = Purpose::kModel});
      ends_.push_back(wrap ? wrap(std::move(end), self) : std::move(end));
      return ends_.back().get();
    };
    std::vector<int> all(members.size());
    std::iota(all.begin(), all.end(), 0);
    Communicator* const model = members.size() > 1 ? open(all, "model") : nullptr;
    std::vector<Communicator*> axes(extents.size(), nullptr);
    for (std::size_t axis = 0; axis < extents.size(); ++axis) {
      if (extents[axis] == 1) continue;
      std::vector<int> places, along = mesh_coordinates(place, extents);
      for (along[axis] = 0; along[axis] < extents[axis]; ++along[axis])
        places.push_back(mesh_index(along, extents));
      axes[axis] = open(places, "axis" + std::to_string(axis));
    }
    mesh_ = Mesh(extents, place, model, axes);
  }

  Mesh& mesh() { return mesh_; }

 private:
  std::vector<std::unique_ptr<Communicator>> ends_;
  Mesh mesh_;
};

class MeshRanks {
 public:
  using Wrap = MeshEnds::Wrap;

  /// `world_ranks`: the rank at each place of the mesh, row-major; empty: in order.
  explicit MeshRanks(std::vector<int> extents, std::vector<int> world_ranks = {}, double deadline_s = 30)
      : extents_(std::move(extents)), members_(std::move(world_ranks)) {
    int ranks = 1;
    for (const int extent : extents_) ranks *= extent;
    if (members_.empty()) {
      members_.resize(ranks);
      std::iota(members_.begin(), members_.end(), 0);
    }
    registry_.discover({});
    transport_ = make<Transport>(registry_, host_, "thread", "");
    transport_->connect({.ranks = ranks, .deadline_s = deadline_s, .link = {}, .clock = clock_.get()});
  }

  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<int>& extents() const { return extents_; }
  Transport& transport() { return *transport_; }

  /// Runs body(mesh) on every rank; returns the error text of each by mesh index, "" for none.
  std::vector<std::string> run(const std::function<void(Mesh&)>& body, const Wrap& wrap = {}) {
    std::vector<std::string> errors(members_.size());
    std::vector<std::thread> threads;
    std::vector<int> participants;
    for (const int rank : members_)
      participants.push_back(clock_->announce(rank, 0, "rank " + std::to_string(rank)));
    for (std::size_t place = 0; place < members_.size(); ++place) {
      threads.emplace_back([&, place] {
        try {
          clock_->enter(participants[place]);
          body(MeshEnds(*transport_, extents_, members_, static_cast<int>(place), "", wrap).mesh());
        } catch (const Error& error) {
          errors[place] = error.what();
        }
        clock_->leave();
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

 private:
  std::vector<int> extents_, members_;
  QuietHost host_;
  Registry registry_;
  std::unique_ptr<Clock> clock_ = make_wall_clock();
  Made<Transport> transport_;
};

}  // namespace tenon::testing
