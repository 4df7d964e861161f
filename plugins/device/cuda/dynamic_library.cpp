// The C library's loader, as DynamicLibrary uses it.
#include "dynamic_library.hpp"

#include <dlfcn.h>

namespace tenon::cuda {

DynamicLibrary::DynamicLibrary(std::initializer_list<const char*> names) {
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

void* DynamicLibrary::find(const char* symbol) {
  if (handle_ == nullptr) return nullptr;
  void* const found = dlsym(handle_, symbol);
  if (found != nullptr) return found;
  handle_ = nullptr;
  reason_ = name_ + " has no function " + symbol + "; install the version that this program was built with";
  return nullptr;
}

}  // namespace tenon::cuda
