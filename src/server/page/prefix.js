// The prefix cache: prompts from left to right, their common beginnings drawn once. A node's width
// shows its number of blocks, its height its share of the branches.
import {count, h, number, seconds, setText, svg} from './dom.js';

const WIDTH = 360;
const ROW = 13;         // px per leaf
const MAX_LEAVES = 24;
const MIN_NODE = 3;     // px: narrower nodes are drawn this wide

export class PrefixTree {
  #title = h('span');
  #picture = svg('svg', {class: 'tree', role: 'img', preserveAspectRatio: 'none'});
  #note = h('p.note');
  #drawn = '';

  constructor() {
    this.element = h('section', {'aria-label': 'Prefix cache'},
                     h('h3', {}, 'Prefix tree', this.#title), this.#picture, this.#note);
  }

  show({prefix_tree: tree, kv}) {
    const what = JSON.stringify(tree.nodes.map(({id, parent, blocks, readers}) => (
        [id, parent, blocks, readers])));
    if (what === this.#drawn) return;
    this.#drawn = what;
    setText(this.#title, count(tree.nodes.reduce((sum, {blocks}) => sum + blocks, 0), 'block'));
    const roots = grow(tree.nodes);
    const read = tree.nodes.filter(({readers}) => readers > 0).length;
    const shared = tree.nodes.filter(({readers}) => readers > 1).length;
    const text = tree.nodes_total
        ? `${number(read)} being read, ${number(shared)} of them by several sequences. The longest ${
          'prefix'} holds ${number(kv.block_tokens * Math.max(0, ...roots.map(depth)))} tokens.`
        : 'Empty: no prompt is cached yet.';
    setText(this.#note, text);
    this.#picture.setAttribute('aria-label', text);
    this.#draw(roots);
  }

  #draw(roots) {
    // Nodes with most readers first, then the most recently used. Those without room are left out.
    const rank = (node) => Math.max(node.readers * 1e6 - node.age_s, ...node.children.map(rank));
    const sort = (nodes) => {
      nodes.sort((a, b) => rank(b) - rank(a));
      for (const {children} of nodes) sort(children);
    };
    sort(roots);
    const budget = {leaves: MAX_LEAVES};
    const kept = prune(roots, budget);
    const leaves = kept.reduce((sum, node) => sum + node.leaves, 0);
    const scale = WIDTH / Math.max(1, ...kept.map(depth));
    const shapes = [];
    const place = (nodes, x, y) => {
      for (const node of nodes) {
        const width = Math.max(MIN_NODE, node.blocks * scale);
        const kind = ['idle', 'one', 'two'][node.readers] ?? 'many';
        shapes.push(svg('rect', {class: kind, x, y: y * ROW, width, height: node.leaves * ROW - 1,
                                 rx: 2},
                        svg('title', {}, `${count(node.blocks, 'block')}, ${
                            count(node.readers, 'reader')}, last used ${seconds(node.age_s)} ago`)));
        place(node.children, x + width, y);
        y += node.leaves;
      }
    };
    place(kept, 0, 0);
    this.#picture.replaceChildren(...shapes);
    this.#picture.setAttribute('viewBox', `0 0 ${WIDTH} ${Math.max(1, leaves) * ROW}`);
    this.#picture.style.setProperty('height', `${Math.max(0, leaves) * ROW}px`);
  }
}

// The roots of a forest of {blocks, readers, age_s, children}. A root of the tree that holds
// nothing is not drawn; children of nodes that the server left out become roots.
function grow(nodes) {
  const byId = new Map(nodes.map((node) => [node.id, {...node, children: []}]));
  const roots = [];
  for (const node of byId.values()) {
    const parent = node.parent === node.id ? undefined : byId.get(node.parent);
    (parent ? parent.children : roots).push(node);
  }
  return roots.flatMap((root) => (root.blocks ? [root] : root.children));
}

function depth(node) {
  return node.blocks + Math.max(0, ...node.children.map(depth));
}

function prune(nodes, budget) {
  const kept = [];
  for (const node of nodes) {
    if (budget.leaves <= 0) break;
    const children = prune(node.children, budget);
    if (!children.length) --budget.leaves;
    kept.push({...node, children,
               leaves: Math.max(1, children.reduce((sum, child) => sum + child.leaves, 0))});
  }
  return kept;
}
