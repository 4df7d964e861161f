#!/usr/bin/env python3
"""Reduces the output of abidw to what Tenon promises: reads it from standard input, writes it to standard output.

Kept are the types that the probe's functions reach, with their fields, bases, enumerators and virtual functions. Types of
the standard library and of C stay as names with a size. Dropped are functions that are not virtual (a plugin that needs
one of them does not link without it) and everything that depends on the folder or on the day.
"""
import sys
import xml.etree.ElementTree as xml

TYPES = {'type-decl', 'class-decl', 'union-decl', 'enum-decl', 'typedef-decl', 'pointer-type-def', 'reference-type-def',
         'qualified-type-def', 'array-type-def', 'function-type', 'subrange'}
CLASSES = {'class-decl', 'union-decl'}
FORGET = ('filepath', 'line', 'column', 'path', 'comp-dir-path', 'visibility', 'binding')


def is_virtual(member):
    return member.get('vtable-offset') is not None


def shorten(node, ours):
    """Leaves of each class what its layout and its calls are made of."""
    if node.tag != 'elf-symbol':
        for attribute in FORGET:
            node.attrib.pop(attribute, None)
    for child in list(node):
        inside = ours
        if child.tag == 'namespace-decl':
            inside = ours or child.get('name') == 'tenon'
        elif child.tag in CLASSES:
            inside = ours or (child.get('name') or '').startswith('tenon_')
        if child.tag == 'member-function' and not (ours and is_virtual(child)):
            node.remove(child)
            continue
        if child.tag == 'function-decl' and node.tag in ('namespace-decl', 'abi-instr') and not child.get(
                'name').startswith('tenon_abi_'):
            node.remove(child)
            continue
        if child.tag == 'var-decl' and node.tag in ('namespace-decl', 'abi-instr'):
            node.remove(child)
            continue
        if child.tag in CLASSES and not inside:
            for member in list(child):
                if member.tag != 'member-type':
                    child.remove(member)
        if child.tag == 'data-member' and child.get('static') == 'yes':
            node.remove(child)
            continue
        shorten(child, inside)


def references(node, found):
    for attribute, value in node.attrib.items():
        if attribute.endswith('type-id') or attribute in ('naming-typedef-id', 'def-of-decl-id'):
            found.add(value)
    # A nested type counts by itself, when something names it.
    for child in node:
        if child.tag != 'member-type':
            references(child, found)


def sweep(node, alive):
    """Removes what is not alive; tells whether anything of the node stays."""
    for child in list(node):
        if child.tag in TYPES and child.get('id') is not None:
            keep = child.get('id') in alive
            inner = [member for member in child if member.tag == 'member-type']
            for member in inner:
                if not sweep(member, alive):
                    child.remove(member)
            if not keep and not any(member.tag == 'member-type' for member in child):
                node.remove(child)
        elif child.tag in ('namespace-decl', 'member-type', 'class-decl', 'abi-instr'):
            if not sweep(child, alive):
                node.remove(child)
    return len(node) > 0


def main():
    corpus = xml.fromstring(sys.stdin.read())
    shorten(corpus, False)
    by_id = {node.get('id'): node for node in corpus.iter() if node.tag in TYPES and node.get('id')}
    work, alive = set(), set()
    for function in corpus.iter('function-decl'):
        if function.get('name').startswith('tenon_abi_'):
            references(function, work)
    while work:
        name = work.pop()
        if name in alive:
            continue
        alive.add(name)
        if name in by_id:
            references(by_id[name], work)
    sweep(corpus, alive)
    xml.indent(corpus, ' ')
    sys.stdout.write(xml.tostring(corpus, encoding='unicode').replace('"', "'").replace(' />', '/>') + '\n')


main()
