// Pooled rows of tables that are spread over the replicas: each replica sends every owner the ids of the
// owner's rows, and gets one pooled vector for each of its bags that has any there. A bag whose rows have
// several owners is the sum of their partial sums in ascending order of replicas. All replicas take part in
// step, or one asks the others (<tenon/row_service.hpp>); both send an owner the same request.
#pragma once

#include "pooling.hpp"

#include <tenon/row_service.hpp>
#include <tenon/transport.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace tenon::recsys {

/// Shape of a layer's ids.
struct BagShape {
  std::int64_t batch = 0, tables = 0, length = 1;  ///< ids: [batch, tables, length], -1 = none
  std::int64_t width = 0;
};

template <class Real>
class Lookups {
 public:
  /// offsets[t]: first row of table t on each replica. `replicas` outlives this.
  Lookups(const BagShape& shape, std::vector<std::vector<std::int64_t>> offsets, Communicator& replicas);

  /// sums: [batch, tables, width]. tables[t] answers for this replica's rows. Collective.
  void run(std::span<const std::int32_t> ids, std::span<const RowTable* const> tables, Real* sums);
  /// The same, requested from `service` as `node`, whose PooledAnswers answer.
  void ask(std::span<const std::int32_t> ids, RowService& service, int node, Real* sums);

 private:
  /// Bags of one owner: their number in each table, the length of each, their ids.
  struct Ask {
    std::vector<std::int32_t> bags, lengths, ids;
    std::vector<std::int64_t> places;  ///< of each bag in [batch, tables]
  };
  void sort_out(std::span<const std::int32_t> ids);
  void pack_asks();
  void send_asks();
  void answer(std::span<const RowTable* const> tables);
  void send_answers();
  void combine(Real* sums);
  std::size_t peers() const { return asks_.size(); }

  BagShape shape_;
  std::vector<std::vector<std::int64_t>> offsets_;
  Communicator& replicas_;
  std::vector<Ask> asks_;
  std::vector<std::int64_t> ask_words_, asked_words_;       ///< per replica: i32 words sent and received
  std::vector<std::int64_t> wanted_values_, given_values_;  ///< per replica: reals
  std::vector<std::int64_t> one_each_;                      ///< per replica: 1
  std::vector<std::int32_t> out_, in_;
  std::vector<Real> given_, got_;
  std::vector<RowAsk> requests_;  ///< per replica
  /// Runs of bags of one table in the requests to this replica.
  struct Run {
    std::size_t table = 0;
    std::int64_t first_bag = 0, bags = 0;
    const std::int32_t* ids = nullptr;
    std::vector<std::int64_t> begin;
  };
  std::vector<Run> runs_;
  std::size_t run_count_ = 0;
  std::vector<unsigned char> seen_;
};

}  // namespace tenon::recsys
