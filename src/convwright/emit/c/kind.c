/* ---- What was asked for, and is the same for all sizes ---- */

/*@kind@*/
