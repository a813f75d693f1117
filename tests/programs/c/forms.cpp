// SPDX-License-Identifier: Apache-2.0 OR MIT
// Wrong forms and sizes of free, by the operators that the compiler calls. Ends well with "none", after right ones.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

struct small {
        char bytes[40];
};
struct larger {
        char bytes[400];
};

static void *volatile kept;

template <typename type> static type *hidden(type *object)
{
        kept = object;
        return static_cast<type *>(kept);
}

int main(int, char **arguments)
{
        const char *wrong = arguments[1];

        if (!strcmp(wrong, "free"))
                free(hidden(new small));
        else if (!strcmp(wrong, "delete"))
                ::operator delete(hidden(malloc(40)));
        else if (!strcmp(wrong, "size"))
                ::operator delete(hidden(new small), sizeof(larger));
        else if (!strcmp(wrong, "realloc"))
                hidden(realloc(hidden(new small), 1000));
        else if (!strcmp(wrong, "twice")) {
                small *object = hidden(new small);

                delete object;
                delete hidden(object);
        } else if (strcmp(wrong, "none") != 0)
                return 2;

        std::vector<std::string> words;
        for (int i = 0; i < 1000; i++)
                words.push_back(std::string(static_cast<size_t>(i % 100), 'x'));
        delete hidden(new small);
        delete[] hidden(new larger[9]);
        delete hidden(new (std::nothrow) small);
        ::operator delete(hidden(::operator new(100, std::align_val_t(64))), std::align_val_t(64));
        auto shared = std::make_shared<larger>();
        free(hidden(aligned_alloc(64, 128)));
        printf("%zu\n", words.size());
        return shared.use_count() == 1 ? 0 : 1;
}
