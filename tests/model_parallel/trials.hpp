// Parameters of the properties of moves: the carrier of the messages, so that threads and processes
// (processes_main.cpp) are tested alike, and the random moves.
#pragma once

#include "moves.hpp"

#include <tenon/error.hpp>
#include <tenon/testing/mesh_ranks.hpp>

#include <functional>

namespace model_parallel {

using tenon::DType;
using tenon::LinearMap;

/// Runs a function on those ranks of a mesh that are in this process; expects that none throws.
using OnMesh = std::function<void(const std::vector<int>& mesh, const std::function<void(Mesh&)>&)>;

/// An OnMesh whose ranks are threads of this process.
inline void on_threads(const std::vector<int>& mesh, const std::function<void(Mesh&)>& body) {
  tenon::testing::MeshRanks world(mesh);
  EXPECT_EQ(world.run(body), no_errors(world.size()));
}

/// Random moves of one primitive, seeded by name and ranks, so that a trial can be run again alone.
struct Trial {
  std::string_view name;
  int ranks = 1;
  int meshes = 3, moves = 24;  ///< so many moves on each of so many meshes

  Draw draw() const {
    return Draw(static_cast<unsigned>(std::hash<std::string_view>{}(name) ^ static_cast<unsigned>(ranks)));
  }
  std::vector<MoveSpec> moves_on(const std::vector<int>& mesh, Draw& draw) const {
    std::vector<MoveSpec> all;
    for (int i = 0; i < moves; ++i) {
      const auto move = random_move(name, mesh, draw);
      EXPECT_TRUE(move) << "primitive '" << name << "' has no random moves in moves.hpp";
      if (!move) break;
      all.push_back(*move);
      all.back().dtype = DType::kF64;
    }
    return all;
  }
};

inline void PrintTo(const Trial& trial, std::ostream* out) {
  *out << trial.name << " on " << trial.ranks;
}

inline std::string text_of(const MoveSpec& spec) {
  return layout_text(spec.from) + " to " + layout_text(spec.to);
}

template <typename T = double>
std::vector<T> noise(std::int64_t count, std::uint64_t stream) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<T>(small_integer(stream, i)));
  return values;
}
inline std::vector<double> noise(const Shape& shape, std::uint64_t stream) {
  return noise(shape.elements(), stream);
}

template <typename T>
double dot(const std::vector<T>& a, const std::vector<T>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

/// Sums over all ranks, element by element.
inline std::vector<double> sums_over(Mesh& mesh, std::vector<double> values) {
  if (mesh.all() != nullptr) {
    const Shape shape{static_cast<std::int64_t>(values.size())};
    mesh.all()->all_reduce({values.data(), shape, DType::kF64}, tenon::ReduceOp::kSum);
  }
  return values;
}
inline double sum_over(Mesh& mesh, double value) {
  return sums_over(mesh, {value})[0];
}

}  // namespace model_parallel
