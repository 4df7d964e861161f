// Property P3: exchanges in place. A tensor holds a rank's own elements with ghosts around them; the exchange
// fills the ghosts and nothing else, and its adjoint returns the ghosts' gradients to their owners.
#include "trials.hpp"

#include <tenon/sdk/block_exchange.hpp>

#include <gmock/gmock.h>

namespace model_parallel::in_place_test {
namespace {

using tenon::Block;
using tenon::BlockExchange;
using tenon::Deposit;
using tenon::Direction;
using tenon::ExchangeSpec;

/// A rank's elements, and the bounding box of them and of all inputs of its windows.
struct Padded {
  Box own, all;

  /// Calls fn(global index, position in the tensor, whether the rank owns it).
  template <typename Fn>
  void each(Fn&& fn) const {
    each_element(all, [&](const std::vector<std::int64_t>& at, std::int64_t position) {
      bool mine = true;
      for (int dim = 0; dim < own.offset.rank(); ++dim) {
        const std::int64_t index = at[dim];
        mine &= index >= own.offset[dim] && index < own.end(dim);
      }
      fn(at, static_cast<std::size_t>(position), mine);
    });
  }
};

Padded padded(const MoveSpec& spec, const std::vector<int>& mesh, int rank) {
  Padded result{part(spec.from, mesh, rank), {}};
  result.all = result.own;
  const Box out = part(spec.to, mesh, rank);
  for (int dim = 0; dim < out.offset.rank(); ++dim) {
    const tenon::ElementRange need =
        dim_window(spec.windows[dim].get(), {result.own.offset[dim], result.own.end(dim)},
                   {out.offset[dim], out.end(dim)}, spec.from.shape[dim])
            .need;
    if (need.size() == 0) continue;
    const std::int64_t end = std::max(result.own.end(dim), need.end);
    result.all.offset[dim] = std::min(result.own.offset[dim], need.begin);
    result.all.extents[dim] = end - result.all.offset[dim];
  }
  return result;
}

/// From the ranks' own elements to the ghosts of others.
ExchangeSpec ghosts(const MoveSpec& spec, const std::vector<int>& mesh, int rank) {
  const Shape local = padded(spec, mesh, rank).all.extents;
  ExchangeSpec exchange{tenon::DType::kF64, local, local, {}};
  const auto add = [&](int sender, int receiver) {
    const Padded from = padded(spec, mesh, sender), to = padded(spec, mesh, receiver);
    const Box shared = intersection(from.own, to.all);
    Block block{sender, receiver, shared, shared};
    for (int dim = 0; dim < local.rank(); ++dim) {
      block.from.offset[dim] -= from.all.offset[dim];
      block.to.offset[dim] -= to.all.offset[dim];
    }
    if (shared.elements() > 0) exchange.blocks.push_back(block);
  };
  for (int other = 0; other < ranks_of(mesh); ++other) {
    if (other == rank) continue;
    add(rank, other);
    add(other, rank);
  }
  return exchange;
}

MoveSpec windows_of_owners(const std::vector<int>& mesh, Draw& draw) {
  MoveSpec spec = *random_windows(mesh, draw);
  spec.from = draw.layout(spec.from.shape, mesh, false, false);
  spec.to = draw.layout(spec.to.shape, mesh, false, false);
  return spec;
}

class InPlace : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, InPlace, ::testing::Range(1, 9));

TEST_P(InPlace, P3_OnceMoreChangesNothingAndOwnElementsStay) {
  Draw draw(300 + static_cast<unsigned>(GetParam()));
  for (int g = 0; g < 6; ++g) {
    const std::vector<int> mesh = draw.mesh(GetParam());
    std::vector<MoveSpec> moves;
    for (int i = 0; i < 20; ++i) moves.push_back(windows_of_owners(mesh, draw));
    on_threads(mesh, [&](Mesh& at) {
      std::uint64_t stream = 0;
      for (const MoveSpec& spec : moves) {
        stream += 9;
        const Padded here = padded(spec, mesh, at.index());
        BlockExchange exchange(at, ghosts(spec, mesh, at.index()));
        std::vector<double> expected(here.all.elements()), x = expected;
        here.each([&](const auto& index, std::size_t position, bool mine) {
          expected[position] = small_integer(stream, flat_index(index, spec.from.shape));
          x[position] = mine ? expected[position] : 99;
        });
        const auto before = x;
        const tenon::TensorView view = view_of(x, here.all.extents);
        for (const char* time : {"once", "twice", "three times"}) {
          exchange.run(Direction::kForward, view, view, Deposit::kFill);
          EXPECT_EQ(x, expected) << time << ": " << text_of(spec);
        }
        // From one tensor to another it also fills the ghosts, and nothing else.
        x = before;
        std::vector<double> y(x.size(), 77);
        exchange.run(Direction::kForward, view, view_of(y, here.all.extents), Deposit::kFill);
        EXPECT_EQ(x, before);
        here.each([&](const auto&, std::size_t position, bool mine) {
          EXPECT_EQ(y[position], mine ? 77 : expected[position]);
        });
      }
    });
  }
}

// F leaves own elements and overwrites ghosts; F* adds ghosts to their owners' elements, then clears them.
TEST_P(InPlace, P2_TheAdjointAddsGhostsToTheirOwnersElements) {
  Draw draw(350 + static_cast<unsigned>(GetParam()));
  for (int g = 0; g < 6; ++g) {
    const std::vector<int> mesh = draw.mesh(GetParam());
    std::vector<MoveSpec> moves;
    for (int i = 0; i < 20; ++i) moves.push_back(windows_of_owners(mesh, draw));
    on_threads(mesh, [&](Mesh& at) {
      for (const MoveSpec& spec : moves) {
        const Padded here = padded(spec, mesh, at.index());
        BlockExchange exchange(at, ghosts(spec, mesh, at.index()));
        const Shape& local = here.all.extents;
        const auto rank = static_cast<std::uint64_t>(at.index());
        const auto x = noise(local, rank), dy = noise(local, 100 + rank);
        auto y = x, dx = dy;
        exchange.run(Direction::kForward, view_of(y, local), view_of(y, local), Deposit::kFill);
        exchange.run(Direction::kTranspose, view_of(dx, local), view_of(dx, local), Deposit::kAdd);
        here.each([&](const auto&, std::size_t position, bool mine) {
          if (mine) return;
          EXPECT_EQ(dx[position], dy[position]) << "ghosts are the caller's to clear";
          dx[position] = 0;
        });
        EXPECT_EQ(sum_over(at, dot(y, dy)), sum_over(at, dot(x, dx))) << text_of(spec);
      }
    });
  }
}

TEST(InPlaceBlocks, AreRefusedWhereOneIsPutOntoAnother) {
  on_threads({1}, [&](Mesh& at) {
    const Shape line{6};
    std::vector<double> x(6, 1);
    const auto error = [&](std::vector<Block> blocks, Deposit deposit) -> std::string {
      BlockExchange exchange(at, {tenon::DType::kF64, line, line, std::move(blocks)});
      try {
        exchange.run(Direction::kForward, view_of(x, line), view_of(x, line), deposit);
      } catch (const tenon::Error& refused) {
        return refused.what();
      }
      return "";
    };
    const Block beside{0, 0, {{0}, {3}}, {{3}, {3}}}, onto{0, 0, {{0}, {3}}, {{2}, {3}}};
    EXPECT_EQ(error({beside}, Deposit::kFill), "");
    EXPECT_EQ(error({beside}, Deposit::kAdd), "");
    for (const std::string& refusal : {error({onto}, Deposit::kFill), error({beside}, Deposit::kAssign)})
      EXPECT_THAT(refusal, ::testing::HasSubstr("called with one tensor for both sides"));
  });
}

}  // namespace
}  // namespace model_parallel::in_place_test
