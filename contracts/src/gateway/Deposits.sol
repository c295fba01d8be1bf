// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

import {Balances} from "./Balances.sol";
import {IUsdc} from "./IUsdc.sol";
import {Roles} from "./Roles.sol";

/// @title Deposits
///
/// @notice Three ways in. A plain transfer to the gateway is none of them: it credits nobody.
abstract contract Deposits is Roles, Balances, ReentrancyGuardTransient {
    using SafeERC20 for IUsdc;

    /// The most the gateway may hold: what one balance can count. So no credit between depositors can ever overflow,
    /// and no row of a batch can revert its neighbours that way. It is a trillion times the USDC there is.
    uint256 public constant GATEWAY_BALANCE_MAX = type(uint96).max;

    /// Circle Gateway's event, topic and all.
    event Deposited(address indexed token, address indexed depositor, address indexed sender, uint256 value);

    error DepositValueZero();
    error DepositorInvalid(address depositor);
    error DepositorBlacklisted(address depositor);
    error DepositNotReceived(uint256 value, uint256 received);
    error GatewayBalanceTooLarge(uint256 balance, uint256 balanceMax);

    /// Takes the caller's USDC, which the caller has approved, and credits the caller.
    function deposit(address token_, uint256 value) external nonReentrant whenNotPaused onlySupported(token_) {
        _depositApproved(msg.sender, value);
    }

    /// Takes the caller's USDC, which the caller has approved, and credits `depositor`.
    function depositFor(address token_, address depositor, uint256 value)
        external
        nonReentrant
        whenNotPaused
        onlySupported(token_)
    {
        // 1. Refuse those who could never get the money out again.
        if (depositor == address(0) || depositor == address(this)) revert DepositorInvalid(depositor);
        if (token.isBlacklisted(depositor)) revert DepositorBlacklisted(depositor);

        // 2. Deposit.
        _depositApproved(depositor, value);
    }

    /// Takes the USDC of `from` by an ERC-3009 authorization that `from` signed in favour of the gateway, and credits
    /// `from`. Anyone may relay it: whoever does, and whoever does it first, the credit is the signer's.
    ///
    /// @param signature   `r`, `s`, `v`, 65 bytes
    function depositWithAuthorization(
        address token_,
        address from,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        bytes calldata signature
    ) external nonReentrant whenNotPaused onlySupported(token_) {
        _depositAuthorized(from, value, validAfter, validBefore, nonce, signature);
    }

    function depositWithAuthorization(
        address token_,
        address from,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external nonReentrant whenNotPaused onlySupported(token_) {
        _depositAuthorized(from, value, validAfter, validBefore, nonce, abi.encodePacked(r, s, v));
    }

    function _depositApproved(address depositor, uint256 value) private {
        // 1. Credit the depositor.
        uint256 balanceBefore = _openDeposit(depositor, value);

        // 2. Take the caller's tokens.
        token.safeTransferFrom(msg.sender, address(this), value);

        // 3. See that they came.
        _closeDeposit(depositor, msg.sender, value, balanceBefore);
    }

    function _depositAuthorized(
        address from,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        bytes memory signature
    ) private {
        // 1. Credit the signer.
        uint256 balanceBefore = _openDeposit(from, value);

        // 2. Take the signer's tokens. Only the gateway can use this authorization, so nobody can move the money here
        //    without the credit of step 1.
        token.receiveWithAuthorization(from, address(this), value, validAfter, validBefore, nonce, signature);

        // 3. See that they came.
        _closeDeposit(from, from, value, balanceBefore);
    }

    function _openDeposit(address depositor, uint256 value) private returns (uint256 balanceBefore) {
        // 1. Refuse nothing, and more than can be counted.
        if (value == 0) revert DepositValueZero();
        balanceBefore = token.balanceOf(address(this));
        uint256 balanceAfter = Math.saturatingAdd(balanceBefore, value);
        if (balanceAfter > GATEWAY_BALANCE_MAX) revert GatewayBalanceTooLarge(balanceAfter, GATEWAY_BALANCE_MAX);

        // 2. Credit before the tokens are asked for; when they do not come, all of this is undone.
        _credit(depositor, value);
    }

    function _closeDeposit(address depositor, address sender, uint256 value, uint256 balanceBefore) private {
        // 1. The token is not trusted to have moved what was asked.
        uint256 received = token.balanceOf(address(this)) - balanceBefore;
        if (received != value) revert DepositNotReceived(value, received);

        // 2. Say so.
        emit Deposited(address(token), depositor, sender, value);
    }
}
