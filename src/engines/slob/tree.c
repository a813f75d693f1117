/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A tree over each list of pages, to find the next page that has enough free units without a look
 * at all pages between. The kernel's SLOB looks at each page (S7-10). A program may have tens of
 * thousands of pages, and the rest in most is too small for any request, so the walk would be most
 * of SLOB's time.
 *
 * Invariants, under slob_lock:
 *  TREE-1  A tree has the pages of its list, in the list's order as a ring, but with another begin:
 *          a list is turned (S7-11), its tree is not.
 *  TREE-2  `pages` is the number of pages of the subtree; no page of it has more free units than
 *          `most`. Pages that serve may leave `most` too large, and a search in vain makes it
 *          smaller.
 *  TREE-3  No page ranks before its parent. Ranks come of page numbers and look like chance, so a
 *          path has about twice the logarithm of the number of pages (Seidel and Aragon, Randomized
 *          search trees).
 */
#include "engines/slob/block.h"
#include "engines/slob/marks.h"

static uint32_t roots[SLOB_LISTS_MAX];

static struct slob_marks *node(uint32_t number)
{
        return page_at(number)->table;
}

static uint32_t free_units(uint32_t number)
{
        return page_state(page_at(number)).free_units;
}

static uint32_t rank(uint32_t number)
{
        uint32_t mixed = number * 0x9e3779b1u;

        return (mixed ^ mixed >> 15) * 0x85ebca77u;
}

static bool ranks_before(uint32_t one, uint32_t other)
{
        return rank(one) < rank(other) || (rank(one) == rank(other) && one < other);
}

static uint32_t pages_in(uint32_t number)
{
        return number ? node(number)->pages : 0;
}

static uint32_t most_in(uint32_t number)
{
        return number ? node(number)->most : 0;
}

static void tighten(uint32_t number)
{
        struct slob_marks *here = node(number);
        uint32_t below = max_of(most_in(here->left), most_in(here->right));

        here->most = max_of(free_units(number), below);
}

static void recount(uint32_t number)
{
        node(number)->pages = 1 + pages_in(node(number)->left) + pages_in(node(number)->right);
        tighten(number);
}

/* The link that leads to @number: in its parent, or the root. */
static uint32_t *link_to(unsigned int list, uint32_t number)
{
        uint32_t parent = node(number)->parent;

        if (!parent)
                return &roots[list];
        return node(parent)->left == number ? &node(parent)->left : &node(parent)->right;
}

/* A page and its parent change places, and the order stays. */
static void raise(unsigned int list, uint32_t number)
{
        struct slob_marks *here = node(number);
        uint32_t parent = here->parent;
        struct slob_marks *above = node(parent);
        uint32_t *link = link_to(list, parent);
        uint32_t moved;

        if (above->left == number) {
                moved = here->right;
                above->left = moved;
                here->right = parent;
        } else {
                moved = here->left;
                above->right = moved;
                here->left = parent;
        }
        if (moved)
                node(moved)->parent = parent;
        here->parent = above->parent;
        above->parent = number;
        *link = number;
        recount(parent);
        recount(number);
}

void slob_tree_add_locked(struct page *page, const struct page *next)
{
        uint32_t number = page_number(page);
        struct slob_marks *here = node(number);
        uint32_t parent = next ? page_number(next) : 0;

        here->left = here->right = 0;
        if (!parent) {
                roots[page->list] = number;
        } else if (!node(parent)->left) {
                node(parent)->left = number;
        } else {
                for (parent = node(parent)->left; node(parent)->right;)
                        parent = node(parent)->right;
                node(parent)->right = number;
        }
        here->parent = parent;
        recount(number);
        for (; parent; parent = node(parent)->parent) {
                node(parent)->pages++;
                node(parent)->most = max_of(node(parent)->most, here->most);
        }
        while (here->parent && ranks_before(number, here->parent))
                raise(page->list, number);
}

void slob_tree_remove_locked(struct page *page)
{
        uint32_t number = page_number(page);
        struct slob_marks *here = node(number);
        uint32_t child;

        while (here->left && here->right)
                raise(page->list, ranks_before(here->left, here->right) ? here->left : here->right);
        child = here->left ? here->left : here->right;
        *link_to(page->list, number) = child;
        if (child)
                node(child)->parent = here->parent;
        for (uint32_t above = here->parent; above; above = node(above)->parent)
                recount(above);
}

void slob_tree_raise_locked(struct page *page)
{
        uint32_t units = page_state(page).free_units;

        for (uint32_t number = page_number(page); number && node(number)->most < units;
             number = node(number)->parent)
                node(number)->most = units;
}

/* The first page from @number down and to the left that may have @units free units. */
static uint32_t leftmost(uint32_t number, uint32_t units)
{
        while (most_in(node(number)->left) >= units)
                number = node(number)->left;
        return number;
}

static struct page *page_or_null(uint32_t number)
{
        return number ? page_at(number) : NULL;
}

/*
 * The next page behind @number. A subtree that the way up leaves has been searched in full, or lies
 * in front of the begin of the search; either way its bound may be set to the greatest bound of its
 * parts.
 */
static uint32_t next_with(uint32_t number, uint32_t units)
{
        do {
                uint32_t below = node(number)->right;

                if (most_in(below) >= units) {
                        number = leftmost(below, units);
                        continue;
                }
                do {
                        tighten(number);
                        below = number;
                        number = node(number)->parent;
                } while (number && node(number)->right == below);
        } while (number && free_units(number) < units);
        return number;
}

struct page *slob_tree_next_locked(const struct page *page, uint32_t units)
{
        return page_or_null(next_with(page_number(page), units));
}

struct page *slob_tree_first_locked(unsigned int list, uint32_t units)
{
        uint32_t number = roots[list];

        if (most_in(number) < units)
                return NULL;
        number = leftmost(number, units);
        return page_or_null(free_units(number) >= units ? number : next_with(number, units));
}

uint32_t slob_tree_place_locked(const struct page *page)
{
        uint32_t number = page_number(page);
        uint32_t place = pages_in(node(number)->left);

        for (uint32_t parent; (parent = node(number)->parent); number = parent)
                if (node(parent)->right == number)
                        place += pages_in(node(parent)->left) + 1;
        return place;
}

void slob_trees_init(void)
{
        for (unsigned int list = 0; list < SLOB_LISTS_MAX; list++)
                roots[list] = 0;
}
