"""What a page looks like, asked in the browser."""

CONTRASTS = """elements => {
  const pen = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const luminance = layers => {
    for (const colour of layers) {
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
    }
    return [...pen.getImageData(0, 0, 1, 1).data.slice(0, 3)]
      .map(part => part / 255)
      .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
      .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  };
  return elements.map(element => {
    const behind = ['white'];
    for (let up = element; up; up = up.parentElement) {
      behind.splice(1, 0, getComputedStyle(up).backgroundColor);
    }
    const pair = [behind, [...behind, getComputedStyle(element).color]];
    const [light, dark] = pair.map(luminance).sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  });
}"""
"""The contrast of the text of some elements with what is behind it."""

TEXT_FAULTS = """() => {
  const unseen = '.unseen, .tooltip, .grid-columns, option, dialog';
  const seen = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.data.trim() || !parent.closest('#regard') || parent.closest(unseen)) continue;
    if (!parent.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      let { left, top, right, bottom } = box;
      for (let up = parent; up; up = up.parentElement) {
        if (getComputedStyle(up).overflow === 'visible') continue;
        const clip = up.getBoundingClientRect();
        left = Math.max(left, clip.left);
        right = Math.min(right, clip.right);
        top = Math.max(top, clip.top);
        bottom = Math.min(bottom, clip.bottom);
      }
      if (right - left < 1 || bottom - top < 1) continue;
      seen.push({ words: node.data, parent, left, top, right, bottom });
    }
  }
  const faults = [];
  for (const [index, one] of seen.entries()) {
    if (one.left < -1 || one.right > innerWidth + 1) faults.push(`outside: ${one.words}`);
    for (const two of seen.slice(index + 1)) {
      const across = Math.min(one.right, two.right) - Math.max(one.left, two.left);
      const down = Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top);
      if (across <= 2 || down <= 4 || one.parent === two.parent) continue;
      faults.push(`${one.words} over ${two.words}`);
    }
  }
  for (const each of document.querySelectorAll('#regard *')) {
    const { overflowX, textOverflow } = getComputedStyle(each);
    if (overflowX !== 'hidden' && overflowX !== 'clip') continue;
    if (textOverflow === 'ellipsis' || each.closest('.unseen, svg')) continue;
    if (each.scrollWidth > each.clientWidth + 1) faults.push(`cut off: ${each.className}`);
  }
  if (document.documentElement.scrollWidth > innerWidth) faults.push('scrolls sideways');
  return faults;
}"""
"""Texts that overlap, or that reach out of what they stand in."""
