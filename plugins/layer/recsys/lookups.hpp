// Pooled rows of tables that are spread over the replicas: placement, sums of rows bag by bag, and lookups
// from either side.
#pragma once

#include <tenon/parameter.hpp>
#include <tenon/row_service.hpp>
#include <tenon/transport.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tenon::recsys {

// Placement of the rows of the tables of one embedding_bag on several replicas.

/// First row of each replica, and the number of rows: each table is sharded evenly.
std::vector<std::int64_t> even_offsets(std::int64_t rows, int replicas);
/// The same when `owner` holds the whole table.
std::vector<std::int64_t> whole_offsets(std::int64_t rows, int owner, int replicas);

/// Owner of each table. The largest table first, each to the replica with the least load so far (longest
/// processing time first: at most 4/3 of the best greatest load, Graham 1969). The load of a table is its
/// share of all bytes plus its share of all lookups, which is the same for each: a batch reads one bag of
/// each.
std::vector<int> balance(std::span<const std::int64_t> rows, int replicas);

// Sums of table rows, bag by bag.

/// Rows that are read at once, about, so that they stay in the first cache until they are added.
inline constexpr std::int64_t kRowsAtOnce = 128;

/// How rows are read. An evaluation comes by once: it leaves the caches of tables as training needs them.
enum class Reads : std::uint8_t { kTraining, kEvaluation };

/// Scratch of one thread; grows to the size of the largest bag.
template <class Real>
struct PoolingScratch {
  std::vector<std::int64_t> ids;
  std::vector<Real> rows;
};

/// sums[i] = rows of bag i added in the order of its ids, zero for an empty bag. Bag i holds
/// ids[begin[i]] ... ids[begin[i + 1] - 1], negative ones left out. sums[i] begins at sums + i * stride.
template <class Real>
void pool(const RowTable& table, std::span<const std::int32_t> ids, std::span<const std::int64_t> begin,
          Real* sums, std::int64_t stride, PoolingScratch<Real>& scratch, Reads reads);

// Pooled rows of tables that are spread over the replicas: each replica sends every owner the ids of the
// owner's rows, and gets one pooled vector for each of its bags that has any there. A bag whose rows have
// several owners is the sum of their partial sums in ascending order of replicas. All replicas take part in
// step, or one asks the others (<tenon/row_service.hpp>); both send an owner the same request.

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
  void run(std::span<const std::int32_t> ids, std::span<const RowTable* const> tables, Real* sums,
           Reads reads);
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
  void answer(std::span<const RowTable* const> tables, Reads reads);
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

// The owner's side of lookups on request: answers a request of one replica.

/// Request: i32 words, for each table the number of its bags, then the length of each bag, then their ids.
/// Answer: the pooled vector of each bag, [bags, width].
template <class Real>
class PooledAnswers final : public RowLookupHandler {
 public:
  explicit PooledAnswers(std::int64_t width) : width_(width) {}
  void answer(std::span<const std::byte> request, std::span<const RowTable* const> tables,
              std::span<std::byte> answer) const override;

 private:
  std::int64_t width_;
};

}  // namespace tenon::recsys
