// For tests of layers that request rows (<tenon/row_service.hpp>): all replicas in one thread. The node that
// the asked replica offered answers a request at once.
#pragma once

#include <tenon/error.hpp>
#include <tenon/row_service.hpp>

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

namespace tenon::testing {

class RowsOfReplicas {
 public:
  /// sets[r]: the weights of replica r, which holds its rows of sharded tables. They outlive this.
  explicit RowsOfReplicas(const std::vector<ParameterSet*>& sets) {
    for (ParameterSet* set : sets) replicas_.emplace_back(*this, *set);
  }
  RowsOfReplicas(const RowsOfReplicas&) = delete;  // replicas refer to it
  RowsOfReplicas& operator=(const RowsOfReplicas&) = delete;

  /// The service that the host offers to a layer on this replica.
  RowService& service(int replica) { return replicas_.at(replica); }
  /// Bytes of all requests, and of all answers, that passed between two replicas so far.
  std::size_t asked_bytes() const { return asked_; }
  std::size_t answered_bytes() const { return answered_; }

 private:
  struct Node {
    std::string name;
    std::vector<const RowTable*> tables;
    const RowLookupHandler* handler;
  };
  class Service final : public RowService {
   public:
    Service(RowsOfReplicas& all, ParameterSet& set) : all_(all), set_(set) {}
    int offer(std::string_view node, std::span<const std::string> tables,
              const RowLookupHandler& handler) override {
      nodes_.push_back({std::string(node), {}, &handler});
      for (const std::string& name : tables) {
        for (const ParameterInfo& info : set_.parameters()) {
          if (info.spec.name == name) nodes_.back().tables.push_back(set_.table(info.index));
        }
      }
      return static_cast<int>(nodes_.size()) - 1;
    }
    void ask(int node, std::span<const RowAsk> asks) override { all_.carry(*this, node, asks); }
    const Node& node(int number) const { return nodes_.at(number); }

   private:
    RowsOfReplicas& all_;
    ParameterSet& set_;
    std::vector<Node> nodes_;
  };

  void carry(const Service& client, int number, std::span<const RowAsk> asks) {
    if (asks.size() != replicas_.size()) fail_plugin("a node asks another number of replicas than there are");
    for (std::size_t r = 0; r < asks.size(); ++r) {
      if (asks[r].request.empty()) continue;
      const Node& node = replicas_[r].node(number);
      node.handler->answer(asks[r].request, node.tables, asks[r].answer);
      if (&replicas_[r] == &client) continue;
      asked_ += asks[r].request.size();
      answered_ += asks[r].answer.size();
    }
  }

  std::deque<Service> replicas_;
  std::size_t asked_ = 0, answered_ = 0;
};

}  // namespace tenon::testing
