// A CUDA library that is opened when it is first needed and may be absent: its functions by name, and why it
// cannot be used. Plain C++, for cuBLASLt, cuDNN, cuFFT and the like.
#pragma once

#include <dlfcn.h>

#include <initializer_list>
#include <string>

namespace tenon::cuda {

/// Stays open until the process ends: these libraries keep state with the driver that outlives their handles.
class DynamicLibrary {
 public:
  /// Opens the first of `names` that the loader finds; a name with '/' is a path. Takes up to a second for a
  /// large library that is not in the page cache.
  explicit DynamicLibrary(std::initializer_list<const char*> names);

  /// False where no name was found or a function was missing.
  bool usable() const { return handle_ != nullptr; }
  /// The names tried and the loader's message; "" while usable.
  const std::string& reason() const { return reason_; }
  /// The name under which it was found.
  const std::string& name() const { return name_; }

  /// Sets `function` to the library's `symbol`; null, and the library no longer usable, where it has none.
  template <class F>
  void resolve(const char* symbol, F*& function) {
    function = reinterpret_cast<F*>(find(symbol));
  }

 private:
  void* find(const char* symbol);

  void* handle_ = nullptr;
  std::string name_, reason_;
};

inline DynamicLibrary::DynamicLibrary(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    handle_ = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (handle_ != nullptr) {
      name_ = name;
      reason_.clear();
      return;
    }
    const char* const text = dlerror();
    if (!reason_.empty()) reason_ += "; ";
    reason_ += text != nullptr ? text : name;
  }
}

inline void* DynamicLibrary::find(const char* symbol) {
  if (handle_ == nullptr) return nullptr;
  void* const found = dlsym(handle_, symbol);
  if (found != nullptr) return found;
  handle_ = nullptr;
  reason_ = name_ + " has no function " + symbol + "; install the version that this program was built with";
  return nullptr;
}

}  // namespace tenon::cuda
