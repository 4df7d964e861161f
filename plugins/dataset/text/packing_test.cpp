// Packing against the rule carried out by hand and by a search over all rows, and its bound.
#include "packing.hpp"

#include <tenon/error.hpp>
#include <tenon/random.hpp>
#include <tenon/testing/folders.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace tenon::text {
namespace {

using ::testing::ElementsAre;

using Rows = std::vector<std::vector<std::int64_t>>;

Rows rows_of(const Packing& packing) {
  Rows rows;
  for (std::int64_t r = 0; r < packing.rows(); ++r)
    rows.emplace_back(packing.row(r).begin(), packing.row(r).end());
  return rows;
}

/// The rule as a search: documents by descending length, each into the row with the least room.
Rows searched(const std::vector<std::int64_t>& lengths, std::int64_t context) {
  Rows rows;
  std::vector<std::int64_t> room;
  for (std::int64_t length = context; length >= 1; --length) {
    for (std::size_t document = 0; document < lengths.size(); ++document) {
      if (lengths[document] != length) continue;
      std::size_t best = rows.size();
      for (std::size_t r = 0; r < rows.size(); ++r)
        if (room[r] >= length && (best == rows.size() || room[r] < room[best])) best = r;
      if (best == rows.size()) {
        rows.emplace_back();
        room.push_back(context);
      }
      rows[best].push_back(static_cast<std::int64_t>(document));
      room[best] -= length;
    }
  }
  for (std::vector<std::int64_t>& row : rows) std::sort(row.begin(), row.end());
  std::sort(rows.begin(), rows.end());
  return rows;
}

TEST(PackingTest, TakesTheRowWithTheLeastRoom) {
  // 7 and 6 begin rows with 3 and 4 places left; 3 fills the first one, which first fit would give to 7, too,
  // and 4 fills the second one before it.
  EXPECT_THAT(rows_of(best_fit(std::vector<std::int64_t>{3, 6, 4, 7}, 10)),
              ElementsAre(ElementsAre(0, 3), ElementsAre(1, 2)));
  // 6 and 7 have room for 2; the row of 7 has less.
  EXPECT_THAT(rows_of(best_fit(std::vector<std::int64_t>{6, 7, 2}, 10)),
              ElementsAre(ElementsAre(0), ElementsAre(1, 2)));
  // Equal room: the row that was begun first.
  EXPECT_THAT(rows_of(best_fit(std::vector<std::int64_t>{6, 6, 3}, 10)),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
}

TEST(PackingTest, PaddingIsTheShareOfEmptyPlaces) {
  const std::vector<std::int64_t> lengths{6, 7, 2};
  EXPECT_EQ(best_fit(lengths, 10).padding(), 0.25);
  EXPECT_EQ(best_fit(std::vector<std::int64_t>{5, 5}, 5).padding(), 0);
  const Packing none = best_fit({}, 5);
  EXPECT_EQ(none.rows(), 0);
  EXPECT_EQ(none.padding(), 0);
}

TEST(PackingTest, IsBestFitForLengthsAtRandom) {
  const RandomKey key = random_key(7, "packing");
  for (std::uint64_t trial = 0; trial < 200; ++trial) {
    const auto context = static_cast<std::int64_t>(1 + random_below(key, trial, 0, 64));
    std::vector<std::int64_t> lengths(random_below(key, trial, 1, 120));
    for (std::size_t i = 0; i < lengths.size(); ++i)
      lengths[i] =
          static_cast<std::int64_t>(1 + random_below(key, trial, 2 + i, static_cast<std::uint64_t>(context)));
    const Packing packing = best_fit(lengths, context);
    ASSERT_EQ(rows_of(packing), searched(lengths, context)) << "trial " << trial;
    std::vector<int> uses(lengths.size(), 0);
    for (std::int64_t r = 0; r < packing.rows(); ++r) {
      std::int64_t filled = 0;
      for (const std::int64_t document : packing.row(r)) {
        ++uses[static_cast<std::size_t>(document)];
        filled += lengths[static_cast<std::size_t>(document)];
      }
      ASSERT_LE(filled, context);
    }
    ASSERT_EQ(std::count(uses.begin(), uses.end(), 1), static_cast<std::ptrdiff_t>(lengths.size()));
    // No packing has fewer rows than the places need.
    const std::int64_t places = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
    const std::int64_t least = (places + context - 1) / context;
    ASSERT_GE(packing.rows(), least);
    ASSERT_LE(packing.rows(), static_cast<std::int64_t>(lengths.size()));
    const double expected =
        packing.rows() == 0 ? 0
                            : 1 - static_cast<double>(places) / static_cast<double>(packing.rows() * context);
    ASSERT_NEAR(packing.padding(), expected, 1e-12);
  }
}

TEST(PackingTest, RefusesDocumentsThatFitIntoNoRow) {
  EXPECT_EQ(testing::error_of(
                [] {
                  best_fit(std::vector<std::int64_t>{3, 11}, 10);
                },
                ErrorKind::kPlugin),
            "document 1 has 11 places; rows of context = 10 hold 1 to 10 of them");
  EXPECT_EQ(testing::error_of(
                [] {
                  best_fit(std::vector<std::int64_t>{3, 0}, 10);
                },
                ErrorKind::kPlugin),
            "document 1 has 0 places; rows of context = 10 hold 1 to 10 of them");
}

}  // namespace
}  // namespace tenon::text
