// Divergences of distributions and distances of states (families DivergenceOps, StateDistanceOps).
#include "common.hpp"
#include "device_common/divergences.hpp"

#include <tenon/kernels/cuda/divergence.hpp>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

class CudaDivergenceOps final : public DivergenceOps {
 public:
  explicit CudaDivergenceOps(Queue& queue) : queue_(queue) {}

  void divergence(const DivergenceSpec& spec, TensorView student, TensorView teacher, TensorView targets,
                  TensorView loss, TensorView statistics) override {
    constexpr const char* kWhere = "divergence";
    with_arithmetic(student.dtype, kWhere, [&](auto tag) {
      using A = typename decltype(tag)::type;
      using Body = bodies::DivergenceLosses<A>;
      Body body{device_arguments::divergence<A>(spec, student, teacher, targets, statistics, kWhere)};
      body.args.loss = checked<A>(loss, body.args.rows, kWhere, "loss");
      if (body.args.rows == 0) return;
      queue_.launch(kWhere, bodies::grid_for_rows(body.args.rows, body.args.columns, Body::kShared), body);
    });
  }

  void divergence_backward(const DivergenceSpec& spec, TensorView student, TensorView teacher,
                           TensorView targets, TensorView statistics, double scale,
                           TensorView dstudent) override {
    constexpr const char* kWhere = "divergence_backward";
    with_arithmetic(student.dtype, kWhere, [&](auto tag) {
      using A = typename decltype(tag)::type;
      using Body = bodies::DivergenceGradient<A>;
      Body body{device_arguments::divergence<A>(spec, student, teacher, targets, statistics, kWhere)};
      body.args.scale = static_cast<A>(scale);
      const std::int64_t n = body.args.rows * body.args.columns;
      A* const to = checked<A>(dstudent, n, kWhere, "dstudent");
      if (n > 0) queue_.launch(kWhere, grid_for(n), bodies::MapElements<A, Body>{to, n, body});
    });
  }

 private:
  Queue& queue_;
};

class CudaStateDistanceOps final : public StateDistanceOps {
 public:
  explicit CudaStateDistanceOps(Queue& queue) : queue_(queue) {}

  void distance(StateDistance form, TensorView student, TensorView teacher, TensorView targets,
                TensorView loss, TensorView statistics) override {
    constexpr const char* kWhere = "distance";
    with_storage(student.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using Body = bodies::StateDistances<S>;
      const auto of = device_arguments::distance<S>(student, teacher, statistics, kWhere);
      const Body body{device_arguments::distance_form(form),
                      of.rows,
                      of.columns,
                      of.student,
                      of.teacher,
                      checked<std::int32_t>(targets, of.rows, kWhere, "targets"),
                      checked<Arith<S>>(loss, of.rows, kWhere, "loss"),
                      of.statistics};
      if (of.rows > 0) queue_.launch(kWhere, bodies::grid_for_rows(of.rows, of.columns, Body::kShared), body);
    });
  }

  void distance_backward(TensorView student, TensorView teacher, TensorView statistics, double scale,
                         TensorView dstudent, bool accumulate) override {
    constexpr const char* kWhere = "distance_backward";
    with_storage(student.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using Body = bodies::StateDistanceGradient<S>;
      const auto of = device_arguments::distance<S>(student, teacher, statistics, kWhere);
      const std::int64_t n = of.rows * of.columns;
      S* const to = checked<S>(dstudent, n, kWhere, "dstudent");
      const Body body{of.columns,
                      of.student,
                      of.teacher,
                      of.statistics,
                      static_cast<Arith<S>>(scale),
                      accumulate ? to : nullptr};
      if (n > 0) queue_.launch(kWhere, grid_for(n), bodies::MapElements<S, Body>{to, n, body});
    });
  }

 private:
  Queue& queue_;
};

}  // namespace

std::unique_ptr<StateDistanceOps> make_state_distance_ops(Queue& queue) {
  return std::make_unique<CudaStateDistanceOps>(queue);
}

std::unique_ptr<DivergenceOps> make_divergence_ops(Queue& queue) {
  return std::make_unique<CudaDivergenceOps>(queue);
}

}  // namespace tenon::cuda
